"""What the end of a log holds that was not read yet: its last step, and whether anything is to be known at once."""

from __future__ import annotations

import contextlib
import os
import re

import msgspec

from xlaprof.events import NEWS, End, Step, StepDigest

_END = 1 << 15  # bytes
_FEW, _MOST = 1 << 12, 1 << 20  # bytes that are read at once: some fifty events, which takes no time, and all too many
_AT_ONCE = re.compile("|".join(f'"k":"{kind.__struct_config__.tag}"' for kind in (*NEWS, End)).encode())
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


def may_wait(path: str, since: int) -> bool:
    """Whether the log at ``path`` has much from this byte on, with nothing in it that is to be known at once."""
    try:
        with open(path, "rb") as file:
            if not since + _FEW <= os.fstat(file.fileno()).st_size <= since + _MOST:
                return False
            file.seek(since)
            return _AT_ONCE.search(file.read(_MOST)) is None
    except OSError:
        return False
