"""The texts of compiled programs, kept beside a log where somebody asked for them: ``run.code/`` beside ``run.log``.

They are written by the writer's thread: a disk that is slow, full or gone is told once and counted, and never reaches
the program. The folder is this user's alone, and so is each file in it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.errors import warn
from xlaprof.events import Code

LARGEST = 32_000_000  # bytes of one text
ALL = 2_000_000_000  # bytes of all texts of a recording
MOST = 10_000  # texts

#: names of our own files: those of an earlier recording are removed
_OURS = re.compile(r"\d{5}(\.[\w\-]{1,40}){3}\.txt", re.ASCII)
_OTHER = re.compile(r"[^\w\-]+", re.ASCII)
#: how a name may look that is read back
_PLAIN = re.compile(r"\w[\w.\-]{0,199}", re.ASCII)


class NewCode(NamedTuple):
    """A text that is to be written: ``event`` says which, all but its file and size."""

    event: Code
    text: str
    lost: str = ""  # why there is no text


def folder_of(log: str) -> str:
    """Where the texts of a log's programs are: "run.code" of "run.log"."""
    return f"{log.removesuffix('.gz').removesuffix('.log')}.code"


def is_plain(name: str) -> bool:
    """Whether ``name`` is that of a file in the folder, wherever it comes from."""
    return bool(_PLAIN.fullmatch(name))


class CodeFolder:
    """The folder of one recording, emptied of what an earlier one left."""

    def __init__(self, log: str) -> None:
        self.path = folder_of(log)
        self.why = ""  # the last text was lost
        self._lost = self._number = self._bytes = 0
        self._told = self._unusable = False
        try:
            self._begin()
        except OSError as error:
            self._unusable = True
            self._trouble(error)

    def _begin(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        there = os.lstat(self.path)
        if not stat.S_ISDIR(there.st_mode) or (hasattr(os, "geteuid") and there.st_uid != os.geteuid()):
            raise FileExistsError(errno.EEXIST, "it is no folder of this user's")
        os.chmod(self.path, 0o700)
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name):
                os.unlink(os.path.join(self.path, name))

    def keep(self, new: NewCode) -> Code | None:
        """Write a text; its event, or None where it is lost."""
        if new.lost:
            self._lose(new.lost)
            return None
        if self._unusable:
            self._lost += 1
            return None
        encoded = _encoded(new.text)
        self._number += 1
        if self._number > MOST or self._bytes + len(encoded) > ALL:
            self._lose(f"a recording keeps {MOST:,} texts of {ALL // 1_000_000:,} MB at most")
            return None
        parts = (_OTHER.sub("_", part)[:40] or "_" for part in (new.event.source, new.event.key, new.event.form))
        name = f"{self._number:05d}.{'.'.join(parts)}.txt"
        try:
            _write(os.path.join(self.path, name), encoded)
        except OSError as error:
            self._lost += 1
            self._trouble(error)
            return None
        self._bytes += len(encoded)
        return replace(new.event, file=name, bytes=len(encoded))

    def _lose(self, why: str) -> None:
        """A text is not kept. Said once."""
        self._lost += 1
        self.why = why
        if not self._told:
            self._told = True
            warn(f"not every program's text is kept in {self.path}: {why}; the program goes on")

    def take_lost(self) -> int:
        """How many were lost since the last call."""
        count, self._lost = self._lost, 0
        return count

    def _trouble(self, error: OSError) -> None:
        self.why = error.strerror or str(error)
        if not self._told:
            self._told = True
            warn(f"cannot keep the texts of programs in {self.path}: {self.why}; the program goes on")


def _encoded(text: str) -> bytes:
    """``text`` in UTF-8; of a longer one the beginning, and how long it was."""
    encoded = text[: LARGEST + 1].encode("utf-8", "backslashreplace")
    if len(encoded) <= LARGEST:
        return encoded
    note = f"\n... cut here: the text has {len(text):,} characters\n".encode()
    return encoded[: LARGEST - len(note)].decode("utf-8", "ignore").encode() + note


def _write(path: str, content: bytes) -> None:
    # neither through a link nor into a file that is there
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
