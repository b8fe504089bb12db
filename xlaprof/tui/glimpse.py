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
_LONGEST = 64  # bytes: more than what is searched for has
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


class Unread:
    """What the log at ``path`` has behind what was read of it; each byte is looked at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._since = self._searched = 0  # where the unread part begins, and up to where it has been searched

    def may_wait(self, since: int) -> bool:
        """Whether there is much from this byte on, with nothing in it that is to be known at once."""
        if since != self._since:
            self._since = self._searched = since
        try:
            with open(self.path, "rb") as file:
                if not since + _FEW <= os.fstat(file.fileno()).st_size <= since + _MOST:
                    return False
                at = max(since, self._searched - _LONGEST)
                file.seek(at)
                unread = file.read(_MOST)
        except OSError:
            return False
        if _AT_ONCE.search(unread) is not None:
            return False  # asked again, it is found again: what was searched is not moved on
        self._searched = at + len(unread)
        return True
