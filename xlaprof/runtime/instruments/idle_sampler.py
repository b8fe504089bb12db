"""Samples the host's stack while the device idles. The watcher of executions does it: it has nothing else to do then.

It waits for the next execution with a limit, and when that has passed the device has idled for so long: in a loop whose
gaps are short this costs nothing, not even a wake-up.
"""

from __future__ import annotations

from xlaprof.recording import recorder
from xlaprof.recording.stack_sampler import StackSampler, Target
from xlaprof.runtime.clock import clock

_sampler: StackSampler | None = None
_looked = False  # since what was found was last emitted


def start(rec: recorder.Recorder) -> None:
    """A recording begins."""
    global _sampler
    _sampler = StackSampler(rec)


def stop() -> None:
    """It is about to end."""
    global _sampler
    ending, _sampler = _sampler, None
    if ending is not None:
        ending.close()


def begin() -> float | None:
    """The device has finished what it was given: seconds until the first look, None where nobody wants to know."""
    return None if _sampler is None else _sampler.idle_again()


def end() -> None:
    """The device has been given something."""
    global _looked
    if _looked:
        _looked = False
        if _sampler is not None:
            _sampler.flush()


def look(idle_since: int) -> float | None:
    """Look at the host, which has given the device nothing since ``idle_since``; seconds until the next look."""
    global _looked
    sampler = _sampler
    if sampler is None:
        return None
    pause = sampler.look(Target(clock.ident, clock.tid, clock.last, clock.frames), idle_since)
    _looked = True
    return pause
