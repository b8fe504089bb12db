"""The steps of a whole run in their order, as frozen values: what each took, and for what."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import msgspec

from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.timeline.host import CAUSES, SCOPE
from xlaprof.analysis.timeline.kept import StepRow
from xlaprof.text.parts import PARTS

#: the causes of host time, in the order of :data:`xlaprof.text.parts.PARTS`
_CAUSE_OF = {name: cause for cause, name in CAUSES.items()} | {"named scopes": SCOPE}
CAUSES_IN_ORDER = tuple(_CAUSE_OF[name] for name, _ in PARTS)


class Bar(msgspec.Struct, frozen=True, gc=False):
    """A step, or, in a long run, some that follow each other. Seconds."""

    first: int  # number of the first step, and
    last: int  # of the last
    count: int
    start_s: float  # since the begin of the recording
    total_s: float  # of all
    most_s: float  # of the longest
    busy_s: float  # the mean over the devices
    parts: tuple[float, ...]  # of all, in the order of ``xlaprof.text.parts.PARTS``
    until_s: float = 0.0  # the begin of the step after them; 0: not known

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0

    @property
    def spans_s(self) -> float:
        """From the begin of the first to the end of the last."""
        return self.total_s if self.count <= 1 or not self.until_s else max(self.total_s, self.until_s - self.start_s)

    @property
    def title(self) -> str:
        """ "step 21", "steps 21 to 24"."""
        return f"step {self.first:,}" if self.count == 1 else f"steps {self.first:,} to {self.last:,}"

    def named(self) -> list[tuple[str, float]]:
        """(name, seconds of a step on average) of the parts that took time, the largest first."""
        rows = [(name, seconds / max(1, self.count)) for (name, _), seconds in zip(PARTS, self.parts, strict=True)]
        return sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])


class Course(msgspec.Struct, frozen=True):
    """The steps of the name with most time. ``bars`` are without the first step, which compiles."""

    name: str = ""
    first: Bar | None = None
    bars: tuple[Bar, ...] = ()

    def at(self, step: int) -> Bar | None:
        """The bar that has a step of this number."""
        bars = (*((self.first,) if self.first is not None else ()), *self.bars)
        return next((bar for bar in bars if bar.first <= step <= bar.last), None)


class Bars:
    """Bars of the rows of a run that grows, each made once: a row of a settled run does not change."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[StepRow, float, Bar]] = {}  # by id of the row, which is kept so that it stays one
        self._scale = (0, 0)

    def of(self, rows: Iterable[StepRow], devices: int, begin: int) -> tuple[Bar, ...]:
        """The bars of rows in order of time; ``begin``: of the recording, in ns."""
        before = self._made if self._scale == (devices, begin) else {}
        held = list(rows)
        made: dict[int, tuple[StepRow, float, Bar]] = {}
        for row, after in zip_longest(held, held[1:]):
            until = (after.start - begin) / 1e9 if after is not None else 0.0
            known = before.get(id(row))
            if known is None or known[1] != until:
                known = row, until, _bar(row, devices, begin, until)
            made[id(row)] = known
        self._made, self._scale = made, (devices, begin)
        return tuple(bar for _, _, bar in made.values())


def course(settled: KeptRun, name: str, bars: Bars | None = None) -> Course:
    """The steps called ``name`` of a settled run, as its report calls them; those that were inferred have no name.

    ``bars``: those of earlier moments.
    """
    bars = bars or Bars()
    devices, begin = max(1, len(settled.devices())), settled.begin or 0
    steps = settled.window.steps
    number = next((number for number in steps if number and settled.names.text(number) == name), 0)
    if number not in steps or (not number and len(steps) > 1):
        return Course(name)
    rows = steps[number]
    first = _bar(rows.first, devices, begin) if rows.first is not None else None
    return Course(name, first, bars.of(rows, devices, begin))


def _bar(row: StepRow, devices: int, begin: int, until_s: float = 0.0) -> Bar:
    parts = row.parts
    return Bar(
        first=row.first,
        last=row.last,
        count=row.steps,
        start_s=(row.start - begin) / 1e9,
        total_s=row.total / 1e9,
        most_s=row.most / 1e9,
        busy_s=row.busy / devices / 1e9,
        parts=tuple([parts[cause] / 1e9 for cause in CAUSES_IN_ORDER]),
        until_s=until_s,
    )
