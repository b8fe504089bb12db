"""Where the main thread stood for long: what the looks at it found, in order of time.

Of one recording this is part of what its time went to. Beside the recordings of other ranks it says what a rank did
while another one compiled.
"""

from __future__ import annotations

from heapq import heappush, heappushpop
from typing import NamedTuple

from xlaprof.events import Look

_WORTH_NS = 200_000_000  # shorter ones are not kept
_APART_NS = 100_000_000  # between two looks that belong together
_MOST = 2_000


class Stood(NamedTuple):
    """The main thread was seen at one line of the user's all the time. Nanoseconds."""

    dur: int
    start: int
    stack: int  # a library's line below it is where it was seen first
    at: tuple[str, int]  # the user's line


class Standing:
    """The longest of them, of one recording."""

    def __init__(self) -> None:
        self._kept: list[Stood] = []  # a heap, the shortest first
        self._open: Stood | None = None

    def add(self, look: Look, at: tuple[str, int]) -> None:
        """Count a look at a line (file and number) of the user's; one that goes on counts with those before it."""
        now = self._open
        if now is not None and at == now.at and look.t - (now.start + now.dur) <= _APART_NS:
            self._open = now._replace(dur=look.t + look.dur - now.start)
            return
        self._keep()
        self._open = Stood(look.dur, look.t, look.stack, at)

    def _keep(self) -> None:
        if self._open is None or self._open.dur < _WORTH_NS:
            return
        if len(self._kept) < _MOST:
            heappush(self._kept, self._open)
        else:
            heappushpop(self._kept, self._open)

    def all(self) -> list[Stood]:
        """In order of time; the last may still go on."""
        last = [self._open] if self._open is not None and self._open.dur >= _WORTH_NS else []
        return sorted([*self._kept, *last], key=lambda one: one.start)
