"""Attaches the live sources to each recording, when there is something to observe, and detaches them at its end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.recording.writer import warn
from xlaprof.when_imported import when_imported

from . import registry
from .protocol import Attachment, LiveSource


class _Attached(NamedTuple):
    source: LiveSource
    attachment: Attachment
    counts: dict[str, int]  # its counters when it was attached
    seconds: dict[str, float]


class _Sources:
    """The recorder's observer on behalf of all live sources."""

    def __init__(self) -> None:
        self._rec: recorder.Recorder | None = None
        self._attached: list[_Attached] = []
        self._cancel: list[Callable[[], None]] = []  # of those whose module is not imported yet

    def recording_started(self, rec: recorder.Recorder) -> None:
        self._stop_waiting()
        self._attached.clear()
        self._rec = rec
        for source in registry.live_sources():
            attach = functools.partial(self._attach, source, rec)
            if source.module:
                self._cancel.append(when_imported(source.module, attach))
            else:
                attach()

    def recording_stopping(self, rec: recorder.Recorder) -> None:
        self._stop_waiting()
        for one in self._attached:
            try:
                one.attachment.detach()
            except Exception as error:
                _leave_out(one.source, error)

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        counts: dict[str, int] = {}
        seconds: dict[str, float] = {}
        if recorder.active is not self._rec:  # another begins
            return counts, seconds
        for one in tuple(self._attached):
            try:
                now, total = one.attachment.counters()
                for name, count in now.items():
                    counts[name] = counts.get(name, 0) + count - one.counts.get(name, 0)
                for name, length in total.items():
                    seconds[name] = seconds.get(name, 0.0) + length - one.seconds.get(name, 0.0)
            except Exception as error:
                self._attached.remove(one)
                _leave_out(one.source, error)
        return counts, seconds

    def _attach(self, source: LiveSource, rec: recorder.Recorder) -> None:
        if recorder.active is not rec:  # it ended before the module was imported, or this is a fork's child
            return
        try:  # this may run inside the program's import of the module
            attachment = source.attach(rec)
            if attachment is None:
                return
            counts, seconds = attachment.counters()
        except Exception as error:
            _leave_out(source, error)
            return
        rec.emit(events.Source(perf_counter_ns(), source.name, source.vocabulary))
        self._attached.append(_Attached(source, attachment, dict(counts), dict(seconds)))

    def _stop_waiting(self) -> None:
        for cancel in self._cancel:
            cancel()
        self._cancel.clear()


def _leave_out(source: LiveSource, error: Exception) -> None:
    warn(f"{source.name} is not observed: {type(error).__name__}: {error}")


_sources = _Sources()


def install() -> None:
    """Have every recording of this process observe what the live sources find in it."""
    recorder.add_observer(_sources)
