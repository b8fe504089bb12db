"""Samples the host's stack while the device idles, on the watcher's thread, which has nothing else to do then.

The watcher waits for the next execution with a timeout. When it expires, the device has idled that long: in a loop with
short gaps this costs nothing, not even a wake-up.
"""

from __future__ import annotations

from xlaprof.recording import recorder
from xlaprof.recording.stack_sampler import StackSampler, Target
from xlaprof.runtime.clock import clock

_sampler: StackSampler | None = None
_has_samples = False  # that were not emitted yet


def start(rec: recorder.Recorder) -> None:
    """A recording begins."""
    global _sampler
    _sampler = StackSampler(rec)


def stop() -> None:
    """The recording is about to end."""
    global _sampler
    ending, _sampler = _sampler, None
    if ending is not None:
        ending.close()


def begin() -> float | None:
    """The device has become idle: seconds until the first sample, None without a recording."""
    return None if _sampler is None else _sampler.gap_began()


def end() -> None:
    """The device is no longer idle."""
    global _has_samples
    if _has_samples:
        _has_samples = False
        if _sampler is not None:
            _sampler.flush()


def look(idle_since: int) -> float | None:
    """Sample the host's stack; the device is idle since ``idle_since`` (ns). Returns seconds until the next sample."""
    global _has_samples
    sampler = _sampler
    if sampler is None:
        return None
    pause = sampler.look(Target(clock.ident, clock.tid, clock.last, clock.frames), idle_since)
    _has_samples = True
    return pause
