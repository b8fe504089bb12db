"""The step that a log has last, while what was read of it is being analysed."""

from __future__ import annotations

import contextlib
import os

import msgspec

from xlaprof.events import Step, StepDigest

_END = 1 << 15  # bytes
_BEGINNINGS = b'{"k":"step"', b'{"k":"digest"'
_decoder: msgspec.json.Decoder[Step | StepDigest] = msgspec.json.Decoder(Step | StepDigest)


def last_step(path: str) -> int | None:
    """The number of the last step in the log at ``path``, by its last few lines alone.

    None where they have none, and where it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
            lines = file.read(_END).split(b"\n")[:-1]  # what follows the last line feed is not whole yet
    except OSError:
        return None
    for line in reversed(lines):
        if line.startswith(_BEGINNINGS):
            with contextlib.suppress(msgspec.MsgspecError):
                return _decoder.decode(line).num
    return None
