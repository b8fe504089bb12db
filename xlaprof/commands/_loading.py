"""How verbs open and analyse a recording: any path that a source recognises."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from xlaprof.analysis.run import Run
from xlaprof.errors import UserError
from xlaprof.events import AnyEvent
from xlaprof.log import Follower, Reader
from xlaprof.sources import files, xlaprof_log
from xlaprof.sources.protocol import FileSource

_LONG = 8_000_000  # bytes: some hundred thousand events
_LARGE = 50_000_000  # bytes from which on progress is shown
_SHOW_EVERY_S = 0.5


def fold(path: str, since_step: int | None = None) -> tuple[Run, tuple[str, ...]]:
    """The recording at ``path``, analysed, and the notes of its reader.

    ``since_step``: leave out everything before that step. Raises :class:`UserError` where nothing can be read or
    nothing is left.
    """
    reader = files.read(path)
    run = Run(since_step=since_step, long=os.path.getsize(path) > _LONG)
    with no_collection():
        run.feed_all(with_progress(reader, path))
    if since_step is not None and run.waiting:
        raise UserError(
            f"{path} has no step {since_step} or later (the last one is {run.step_num}): name an earlier one"
            if run.step_num >= 0
            else f"{path} has no named steps, so --since-step {since_step} leaves nothing: leave the option out"
        )
    return run, reader.notes


def follow(path: str) -> Follower:
    """The events of a recording that grows, or does not exist yet. Raises :class:`UserError` for one that cannot."""
    source: FileSource = files.recognise(path) if os.path.exists(path) else xlaprof_log.FILE
    follower = source.follow(path)
    if follower is None:
        raise UserError(f"{path} is a {source.name}, which does not grow: xlaprof report {path}")
    return follower


def with_progress(events: Reader, path: str | os.PathLike[str]) -> Iterator[AnyEvent]:
    """``events`` of the recording at ``path``; of a large one a person at standard error sees how many were read."""
    return _counted(events) if sys.stderr.isatty() and os.path.getsize(path) > _LARGE else iter(events)


def _counted(events: Reader) -> Iterator[AnyEvent]:
    shown = time.monotonic()
    for count, event in enumerate(events, 1):
        yield event
        if count % 8192 == 0 and time.monotonic() - shown > _SHOW_EVERY_S:
            shown = time.monotonic()
            print(f"\rread {count:,} events", end="", file=sys.stderr, flush=True)
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def no_collection() -> Iterator[None]:
    """Without garbage collection: millions of events leave no cycles, and the search for them takes 5 % of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def natural(text: str) -> int:
    """A number of 0 or more, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 0 or more")
    return number
