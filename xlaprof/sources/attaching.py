"""Attaches the live sources to each recording, each once its module is imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns

from xlaprof import events
from xlaprof.recording import recorder
from xlaprof.when_imported import when_imported

from . import registry
from .protocol import LiveSource


class _Sources:
    """The recorder's observer that attaches the others."""

    def __init__(self) -> None:
        self._cancel: list[Callable[[], None]] = []  # of the sources whose module is not imported yet

    def attach(self, rec: recorder.Recorder) -> _Sources:
        self.detach()  # in a fork's child, from its parent's recording
        for source in registry.live_sources():
            attach = functools.partial(_attach, source, rec)
            if source.module:
                self._cancel.append(when_imported(source.module, attach))
            else:
                attach()
        return self

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        return {}, {}

    def detach(self) -> None:
        for cancel in self._cancel:
            cancel()
        self._cancel.clear()


def _attach(source: LiveSource, rec: recorder.Recorder) -> None:
    """This may run inside the program's import of the module, when the recording has ended, or in a fork's child."""
    if recorder.active is rec and rec.adopt(source) and not getattr(source, "announces_itself", False):
        rec.emit(events.Source(perf_counter_ns(), source.name, source.vocabulary))


_sources = _Sources()


def install() -> None:
    """Have every recording of this process observe what the live sources find in it."""
    recorder.add_observer(_sources)
