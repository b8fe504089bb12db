"""The code around a recorded line, from disk, if it still is what was recorded.

A recording holds the line itself. The lines around it are read from the file, which may have changed since, or be
another file on this machine: they are shown only if the line still is as it was recorded.

The file's name comes from the recording, which may be anybody's, and so does the directory it is relative to. So only
what is Python source by its name is opened, of links the file that they lead to, and only a regular file: a recording
that names a key and guesses one of its lines shows nothing of it.
"""

from __future__ import annotations

import os
import stat

import msgspec

from xlaprof.analysis.model import Place

AROUND = 4  # lines before and after
_LARGEST = 4 << 20  # bytes: a larger file is no source code
_SOURCE = (".py", ".pyw")
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)  # Windows has neither


class SourceLine(msgspec.Struct, frozen=True):
    """One line of a file."""

    line: int
    code: str
    marked: bool = False


class Source(msgspec.Struct, frozen=True):
    """A place and the code around it."""

    place: Place
    #: "recorded": the file has the line as it was; "changed": another line is there; "gone": there is no such file;
    #: "refused": it is no Python source; "unknown": the recording does not hold the line's text, or no line at all
    state: str
    lines: tuple[SourceLine, ...]  # with AROUND where the state is "recorded", else the recorded line, if there is one
    now: int = 0  # where the line is now, if it moved and reads so only once

    @property
    def remark(self) -> str:
        """Why the code around the line is not shown; "" where it is."""
        name = self.place.file
        if self.state == "changed":
            where = f": the line is line {self.now} now" if self.now else ""
            return f"{name} has changed since the recording{where}; this is the line as it was recorded"
        if self.state == "gone":
            return f"{name} cannot be read here; this is the line as it was recorded"
        if self.state == "refused":
            return f"{name} is no .py file, and no other is read; this is the line as it was recorded"
        if self.state == "unknown" and self.place.line:
            return f"the recording does not hold the text of line {self.place.line} of {name}"
        return ""


def source(place: Place, cwd: str = "", around: int = AROUND) -> Source:
    """The lines around ``place``. ``cwd``: the directory the program ran in, for file names relative to it."""
    if not place.line or not place.code:
        return Source(place, "unknown", ())
    recorded = (SourceLine(place.line, place.code, True),)
    found = [_read(path) for path in dict.fromkeys((os.path.join(cwd, place.file), place.file))]
    text = next((text for state, text in found if state == "there"), None)
    if text is None:
        return Source(place, found[0][0], recorded)
    lines = text.splitlines()
    if not (place.line <= len(lines) and lines[place.line - 1].strip() == place.code):
        now = [number for number, line in enumerate(lines, 1) if line.strip() == place.code]
        return Source(place, "changed", recorded, now[0] if len(now) == 1 else 0)
    first = max(1, place.line - around)
    shown = lines[first - 1 : place.line + around]
    numbered = (SourceLine(number, line, number == place.line) for number, line in enumerate(shown, first))
    return Source(place, "recorded", tuple(numbered))


def _read(path: str) -> tuple[str, str]:
    """("there", the text), or why there is none: "refused" or "gone"."""
    try:
        real = os.path.realpath(path)
        if not real.endswith(_SOURCE):
            return "refused", ""
        # opened before it is looked at, so that nothing is exchanged in between; a FIFO would wait for its writer
        with open(real, "rb", opener=lambda name, flags: os.open(name, flags | _FLAGS)) as file:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST:
                return "there", file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a null byte in the name
        pass
    return "gone", ""
