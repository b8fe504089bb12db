"""A recording written as a page: read, analysed, and put where the user wants it."""

from __future__ import annotations

import contextlib
import os
import stat

from xlaprof.collection import no_collection
from xlaprof.errors import UserError
from xlaprof.log import LogError
from xlaprof.recording.logfile import private

from .document import BEGINS, document
from .gather import Gathered, Open, gather
from .views import views


def write(log: str, out: str, read: Open, *, since_step: int | None = None, force: bool = False) -> Gathered:
    """Write the page of the recording at ``log`` to the file ``out``, which only its owner may read.

    ``read`` opens the recording. Raises :class:`UserError` where ``out`` is a file that is no such page, without
    ``force``, or cannot be written.
    """
    check(out, force)  # before the long work
    with no_collection():
        gathered = gather(log, read, since_step)
        if since_step is not None and gathered.run.waiting:
            raise LogError(f"{log} has no step {since_step} or later: name an earlier one, or leave --since-step out")
        page = document(views(gathered))
    partial = f"{out}.partial-{os.getpid()}"
    try:
        if os.path.lexists(out) and not stat.S_ISREG(os.stat(out).st_mode):  # a pipe, /dev/stdout
            with open(out, "w", encoding="ascii") as file:
                file.write(page)
            return gathered
        with open(partial, "x", encoding="ascii", opener=private) as file:
            file.write(page)
        os.replace(partial, out)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    return gathered


def check(out: str, force: bool) -> None:
    """Raise :class:`UserError` where ``out`` is something that no page may replace."""
    if os.path.isdir(out):
        raise UserError(f"{out} is a folder: name a file in it, {os.path.join(out, 'report.html')}")
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise UserError(f"cannot write {out}: there is no folder {folder}")
    if force or not os.path.isfile(out):
        return
    try:
        with open(out, "rb") as file:
            ours = file.read(len(BEGINS)) == BEGINS.encode()
            empty = os.fstat(file.fileno()).st_size == 0
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    if not ours and not empty:
        raise UserError(f"{out} is no report of xlaprof, will not overwrite without --force")
