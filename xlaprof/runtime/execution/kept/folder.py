"""The folder of programs that are kept between runs: one file for each, under the name that :mod:`.names` gives.

Many processes may share it, and any may be killed at any moment: a file is written under another name and moved, has a
checksum, and whoever cannot read it takes it for missing. No library serves here: those that bound a folder by use keep
an index in SQLite or behind locks, which network shares break.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import stat
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import serialize_executable
from platformdirs import user_cache_path

from xlaprof.runtime.execution.program import Needs

_MAGIC = b"xlaprof program 1\n"
_SUFFIX = ".program"
_CHECKSUM = 32  # bytes of sha256


class Kept(NamedTuple):
    """A program from the folder, the nanoseconds that its making once took, and what it needs."""

    compiled: Any
    took: int
    needs: Needs | None


class ProgramFolder:
    """Programs by name in ``path``; past ``limit`` bytes the least recently used go."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        self._room: int | None = None  # bytes until it is looked through again; None: it was not yet
        self._lock = threading.Lock()
        self._said = False
        self._usable: bool | None = None  # None: not looked at yet

    def get(self, name: str, device: jax.Device) -> Kept | None:
        """The program of that name for ``device``; None if there is none that can be read."""
        if not self._may_be_used(make=False):
            return None
        file = self.path / (name + _SUFFIX)
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say(f"cannot be read ({error.strerror or error})")
            return None
        body = memoryview(content)[len(_MAGIC) + _CHECKSUM :]
        try:
            if content[: len(_MAGIC)] != _MAGIC:
                raise ValueError("it is no program")
            if hashlib.sha256(body).digest() != content[len(_MAGIC) : len(_MAGIC) + _CHECKSUM]:
                raise ValueError("its checksum is wrong")
            took, program, arguments, results, *needs = pickle.loads(body)
            compiled = serialize_executable.deserialize_and_load(
                program, arguments, results, backend=device.client, execution_devices=[device]
            )
        except Exception as error:  # whatever another version of jax or a damaged disk makes of it
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
            self._say(f"held {file.name}, which cannot be loaded ({error}): it is compiled again")
            return None
        with contextlib.suppress(OSError):  # read-only: then its age stays
            os.utime(file)
        return Kept(compiled, took, Needs(*needs[0]) if needs and needs[0] else None)

    def put(self, name: str, compiled: Any, took: int, needs: Needs | None = None) -> str:
        """Keep ``compiled``, which took ``took`` ns to make and ``needs`` so much; why it cannot be kept, or ""."""
        try:
            program, arguments, results = serialize_executable.serialize(compiled)
            body = pickle.dumps((took, program, arguments, results, needs and tuple(needs)))
        except (NotImplementedError, ValueError, pickle.PicklingError, jax.errors.JaxRuntimeError):
            return "jax cannot write it down"
        if not self._may_be_used(make=True):
            return "the folder cannot be used"
        file = self.path / (name + _SUFFIX)
        new = self.path / f"{name}.{os.getpid()}.{threading.get_ident()}.new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(_MAGIC)
                out.write(hashlib.sha256(body).digest())
                out.write(body)
            os.replace(new, file)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            self._say(f"takes no more programs ({error.strerror or error})")
            return "the folder takes no more"
        self._make_room(len(body))
        return ""

    def _may_be_used(self, *, make: bool) -> bool:
        """Is the folder there, and this user's alone? Loading a program runs what it holds."""
        if self._usable is None:
            try:
                if make:
                    self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                about = self.path.stat()
            except FileNotFoundError:
                return False  # it is made with the first program
            except OSError as error:
                self._usable = False
                self._say(f"cannot be used ({error.strerror or error})")
                return False
            self._usable = stat.S_ISDIR(about.st_mode) and _is_private(about)
            if not self._usable:
                self._say("is no folder of this user's alone (chmod 700 makes it one)")
        return self._usable

    def _make_room(self, more: int) -> None:
        with self._lock:
            if self._room is not None:
                self._room -= more
                if self._room > 0:
                    return
            files = sorted(self._files(), key=lambda found: found[1].st_mtime)
            size = sum(about.st_size for _, about in files)
            if size > self.limit:
                for file, about in files:  # the longest unused first, down to nine tenths: not at every program again
                    with contextlib.suppress(OSError):
                        file.unlink(missing_ok=True)
                    size -= about.st_size
                    if size <= self.limit * 0.9:
                        break
            # Others may fill it too: it is looked through again before it can be twice as far.
            self._room = max((self.limit - size) // 2, 1)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith((_SUFFIX, ".new")):
                    with contextlib.suppress(OSError):  # another process removed it
                        found.append((Path(entry.path), entry.stat()))
        return found

    def _say(self, what: str) -> None:
        """Once in a process."""
        if not self._said:
            self._said = True
            print(
                f"xlaprof: the folder of compiled programs, {self.path}, {what}; "
                "XLAPROF_CACHE_DIR names another, or off",
                file=sys.stderr,
            )


def _is_private(about: os.stat_result) -> bool:
    if os.name != "posix":
        return True
    return about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def from_environment() -> ProgramFolder | None:
    """The folder that ``XLAPROF_CACHE_DIR`` names, else this user's; None where it says ``off``.

    ``XLAPROF_CACHE_MB`` bounds it (2048).
    """
    given = os.environ.get("XLAPROF_CACHE_DIR", "").strip()
    if given.lower() in ("off", "0", "false", "no", "none"):
        return None
    path = Path(given).expanduser() if given else user_cache_path("xlaprof") / "programs"
    size = os.environ.get("XLAPROF_CACHE_MB", "2048")
    try:
        limit = int(float(size) * 1e6)
    except (ValueError, OverflowError):  # "much", "nan", "inf"
        print(f"xlaprof: XLAPROF_CACHE_MB={size} is no number of megabytes; 2048 is used", file=sys.stderr)
        limit = 2_048_000_000
    return ProgramFolder(path, limit)
