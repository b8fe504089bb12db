"""The observers that are attached to a recording: what they have counted since then. Their defects end with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from xlaprof.errors import warn


class Attachment(Protocol):
    """An observer during one recording."""

    def counters(self) -> tuple[dict[str, int], dict[str, float]]:
        """Totals so far: numbers of events, and seconds of the timed ones. Increases are recorded."""

    def detach(self) -> None:
        """The recording ends: last chance to emit. Afterwards the observer leaves nothing in the program."""


class _Attached(NamedTuple):
    name: str
    attachment: Attachment
    each_period: Callable[[], None] | None  # an observer may have it: called in the writer's thread, now and then
    counts: dict[str, int]  # its counters when it was attached
    seconds: dict[str, float]


class Attachments:
    """Of one recording, in the order in which they came."""

    def __init__(self) -> None:
        self._all: list[_Attached] = []

    def add(self, name: str, attachment: Attachment) -> None:
        """Count from now on. Raises what ``attachment.counters()`` does."""
        counts, seconds = attachment.counters()
        each_period = getattr(attachment, "each_period", None)
        self._all.append(_Attached(name, attachment, each_period, dict(counts), dict(seconds)))

    def each_period(self) -> None:
        """Tell those that want to know that another turn of the writer is over."""
        for one in tuple(self._all):
            if one.each_period is not None:
                try:
                    one.each_period()
                except Exception as error:
                    self._all.remove(one)
                    _report_defect(one, error)

    def count(self, counts: dict[str, int], seconds: dict[str, float]) -> None:
        """Add to ``counts`` and ``seconds`` what all have counted."""
        for one in tuple(self._all):
            try:
                now_counts, now_seconds = one.attachment.counters()
                for name, count in now_counts.items():
                    counts[name] = counts.get(name, 0) + count - one.counts.get(name, 0)
                for name, total in now_seconds.items():
                    seconds[name] = seconds.get(name, 0.0) + total - one.seconds.get(name, 0.0)
            except Exception as error:
                self._all.remove(one)
                _report_defect(one, error)

    def detach(self) -> None:
        """Detach all."""
        for one in tuple(self._all):
            try:
                one.attachment.detach()
            except Exception as error:
                _report_defect(one, error)


def _report_defect(one: _Attached, error: Exception) -> None:
    """Report an observer's defect, and keep it out of the observed program."""
    warn(f"{one.name} records nothing more: {type(error).__name__}: {error}")
