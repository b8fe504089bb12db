"""Preemption: a machine that is about to be taken away sends SIGTERM; all ranks learn it at the same step, and save.

While this is active the signal ends no process by itself.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.distributed.job.rendezvous import exchange

_meetings = itertools.count(1)


class _Notice:
    active = False
    came = False
    before: Callable[[int, FrameType | None], Any] | int | None = None


def activate() -> None:
    """Watch for SIGTERM. On the main thread only, as Python's signals are."""
    if not _Notice.active:
        _Notice.before = signal.signal(signal.SIGTERM, _received)
        _Notice.active = True


def deactivate() -> None:
    """Restore the previous handler of SIGTERM."""
    if _Notice.active:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if _Notice.before is None else _Notice.before)
        _Notice.active = _Notice.came = False


def _received(number: int, frame: FrameType | None) -> None:
    _Notice.came = True
    if callable(_Notice.before):
        _Notice.before(number, frame)


def reached(step: int) -> bool:
    """Has any rank got the signal by ``step``? All ranks must call this at every step; all get the same answer.

    ``True`` once for each signal. Several ranks meet on the host.
    """
    if not _Notice.active:
        raise RuntimeError("preemption is not watched for: _activate_preemption_sync_manager() comes first")
    came = _Notice.came
    if world.link() is not None and world.world_size() > 1:
        tag = f"preemption {next(_meetings)} at step {step}"
        came = b"1" in exchange(tag, b"1" if came else b"0")
    if came:
        _Notice.came = False
    return came
