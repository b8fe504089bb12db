"""How every verb opens a recording: any path that a source recognises."""

from __future__ import annotations

import os

from xlaprof.errors import UserError
from xlaprof.log import Follower, LogError, Reader
from xlaprof.sources import files, xlaprof_log
from xlaprof.sources.protocol import FileSource


def load(path: str | os.PathLike[str]) -> Reader:
    """The events of the recording at ``path``. Raises :class:`UserError`: one line, with what was tried."""
    try:
        return files.read(path)
    except LogError as error:
        raise UserError(str(error)) from None


def follow(path: str) -> Follower:
    """The events of a recording that grows, or does not exist yet. Raises :class:`UserError` as :func:`load` does."""
    source: FileSource
    try:
        source = files.recognise(path) if os.path.exists(path) else xlaprof_log.FILE
    except LogError as error:
        raise UserError(str(error)) from None
    follower = source.follow(path)
    if follower is None:
        raise UserError(f"{path} is a {source.name}, which does not grow: xlaprof report {path}")
    return follower
