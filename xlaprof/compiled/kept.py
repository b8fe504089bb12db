"""Reads a text of a compiled program from the folder beside a log. Neither the log nor the folder is trusted.

What a log names is opened only if it is a plain name, and there a regular file of bounded size in a real folder: no
link leads out of it, and no pipe holds the reader up.
"""

from __future__ import annotations

import os
import stat

from xlaprof.errors import UserError
from xlaprof.recording.code_folder import LARGEST, folder_of, is_plain
from xlaprof.text.strings import clip, printable


def read(log: str, file: str) -> str:
    """The text that ``log`` calls ``file``. Raises :class:`UserError`: which file, and what is wrong with it."""
    folder = folder_of(log)
    if not is_plain(file):
        raise UserError(f"{log} names a text '{clip(printable(file), 60)}', which is no plain name: it is not read")
    path = os.path.join(folder, file)
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise UserError(f"{folder} is no folder: the texts of {log} are not read from it")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        if stat.S_ISLNK(os.lstat(path).st_mode):  # where the system has no such flag
            raise UserError(f"{path} is a link: it is not read")
        fd = os.open(path, flags)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise UserError(f"{path} is no regular file: it is not read")
            if about.st_size > LARGEST:
                raise UserError(f"{path} has {about.st_size:,} bytes, more than a recording writes: it is not read")
            with open(fd, "rb", closefd=False) as opened:
                return opened.read(LARGEST).decode("utf-8", "replace")
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: the texts lie beside the log, move them with it") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
