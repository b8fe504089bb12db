"""How verbs open a recording that grows, and read their arguments."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

from xlaprof.collection import keep_memory
from xlaprof.columns import LONG
from xlaprof.errors import UserError
from xlaprof.log import Follower
from xlaprof.sources import files, xlaprof_log


def follow(path: str) -> Follower:
    """The events of a recording that grows, or does not exist yet. Raises :class:`UserError` for one that cannot."""
    source = files.recognise(path) if os.path.exists(path) else xlaprof_log.FILE
    follower = source.follow(path)
    if follower is None:
        raise UserError(f"{path} is a {source.name}, which does not grow: xlaprof report {path}")
    return follower


def prepare(*logs: str) -> None:
    """Prepare this process, which is ours alone, for reading these recordings."""
    with suppress(OSError):  # who opens it says why
        if max(map(os.path.getsize, logs)) > LONG:
            keep_memory()
            # numpy is imported for a long one: each of the threads that BLAS starts then, for nothing, spins for 50 ms
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def natural(text: str) -> int:
    """A number of 0 or more, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 0 or more")
    return number
