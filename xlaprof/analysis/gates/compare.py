"""Two runs of one program, before and after a change: findings gone and new, and step time with its confidence.

:func:`obstacles` says why two runs cannot be compared: numbers of different devices or programs side by side look like
an answer and are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from xlaprof.analysis.model import SEVERITIES, Finding, Report, RunInfo, StepStats
from xlaprof.analysis.run import Run
from xlaprof.text.quantities import plural

from .budget import reads_in_steps
from .difference import independent, shift

TOLERANCE = 0.03  # of a step: what differs from process to process without any change
_SAMPLE = 400  # steps of each run to compare; of more, as many percentiles
_COUNTS_ALIKE = 0.1  # relative: an epoch more or less changes counts by that
_COSTS_ALIKE = 0.2  # relative: costs vary from run to run more than step times
_MATTERS = 0.01  # of a step: a change of cost below it is not worth a line


class StepChange(msgspec.Struct, frozen=True):
    """The steps of one name in both. ``by``, ``low`` and ``high`` are shares of the median before; above 0: slower."""

    name: str
    before_s: float  # median, without the first
    after_s: float
    before_count: int
    after_count: int
    by: float | None  # None: too few steps to say
    low: float | None
    high: float | None
    verdict: str  # "faster" | "slower" | "same" (no difference is certain) | "unknown"


class Quantity(msgspec.Struct, frozen=True):
    """A number of both runs."""

    name: str
    unit: str  # "s" | "" (a count) | "share"
    before: float
    after: float


class Pair(NamedTuple):
    """A finding that both runs have."""

    before: Finding
    after: Finding


class Comparison(msgspec.Struct, frozen=True):
    """Two runs, compared. Lengths in seconds."""

    before: RunInfo
    after: RunInfo
    notes: tuple[str, ...]  # reservations
    steps: tuple[StepChange, ...]
    quantities: tuple[Quantity, ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    changed: tuple[Pair, ...]
    kept: tuple[Pair, ...]  # findings that are as they were

    @property
    def worse(self) -> tuple[str, ...]:
        """Why the second run is worse than the first, if it is."""
        why = []
        if self.new:
            why.append(f"{plural(len(self.new), 'new finding')}")
        risen = [pair for pair in self.changed if _rank(pair.after) < _rank(pair.before)]
        if risen:
            why.append(f"{plural(len(risen), 'finding')} of higher severity than before")
        why += [f"{change.name} steps {_by(change)} slower" for change in self.steps if change.verdict == "slower"]
        return tuple(why)

    @property
    def better(self) -> tuple[str, ...]:
        """Improvements of the second run."""
        why = []
        if self.gone:
            why.append(f"{plural(len(self.gone), 'finding')} gone")
        why += [f"{change.name} steps {_by(change)} faster" for change in self.steps if change.verdict == "faster"]
        return tuple(why)


def compare(
    before: Run,
    after: Run,
    reports: tuple[Report, Report] | None = None,
    tolerance: float = TOLERANCE,
    despite: Sequence[str] = (),
) -> Comparison:
    """From ``before`` to ``after``. A difference of less than ``tolerance`` of a step is none.

    ``despite``: the :func:`obstacles` that were waived.
    """
    before, after = before.settled(), after.settled()
    one, two = reports or (before.report(), after.report())
    gone, new, changed, kept = _findings(one, two)
    figures = zip(_figures(before, one), _figures(after, two), strict=True)
    return Comparison(
        before=one.run,
        after=two.run,
        notes=(*despite, *_notes(one, two)),
        steps=tuple(_steps(before, after, one, two, tolerance)),
        quantities=tuple(Quantity(*first, second) for first, (_, _, second) in figures),
        gone=gone,
        new=new,
        changed=changed,
        kept=kept,
    )


def obstacles(one: Report, two: Report) -> list[str]:
    """The reasons why these runs cannot be compared; none if they can."""
    a, b = one.run, two.run
    found = []
    if a.world != b.world:
        found.append(f"one ran as {a.world}, the other as {b.world} process{'es' * (b.world != 1)}")
    elif a.rank != b.rank:
        found.append(f"one is rank {a.rank}, the other rank {b.rank}: compare the same rank of both")
    if a.platform and b.platform:
        if a.platform != b.platform:
            found.append(f"one ran on {a.platform}, the other on {b.platform}")
        elif a.device_kind != b.device_kind:
            found.append(
                f"one ran on {a.device_kind or 'an unknown device'}, the other on {b.device_kind or 'another'}"
            )
        elif a.device_count != b.device_count:
            found.append(f"one had {plural(a.device_count, 'device')}, the other {b.device_count}")
    found += [f"{run.path} lacks {plural(run.lacks, 'event')} that it dropped" for run in (a, b) if run.lacks]
    mine, theirs = program(a), program(b)
    one_name, other = mine.removesuffix(".py"), theirs.removesuffix(".py")
    # train.py and train_fixed.py are versions of one program, train.py and serve.py are not
    if mine and theirs and not (one_name.startswith(other) or other.startswith(one_name)):
        found.append(f"they are of different programs, {mine} and {theirs}")
    if not one.steps or not two.steps:
        without = " and ".join(repr(report.run.path) for report in (one, two) if not report.steps)
        found.append(f"{without} has no steps")
    elif not {_key(stat) for stat in one.steps} & {_key(stat) for stat in two.steps}:
        found.append(f"they have no steps in common: {_named(one.steps)} in one, {_named(two.steps)} in the other")
    return found


def program(run: RunInfo) -> str:
    """The script's or package's name; "" where it is not known."""
    if not run.argv:
        return ""
    parts = run.argv[0].replace("\\", "/").split("/")
    if parts[-1] == "__main__.py" and len(parts) > 1:
        return parts[-2]
    return parts[-1]


def _notes(one: Report, two: Report) -> list[str]:
    a, b = one.run, two.run
    notes = []
    if program(a) != program(b):
        notes.append(f"the programs have different names: {program(a) or 'unknown'}, {program(b) or 'unknown'}")
    elif a.argv[1:] != b.argv[1:]:
        notes.append(f"called differently: {' '.join(a.argv[1:]) or 'nothing'} | {' '.join(b.argv[1:]) or 'nothing'}")
    if a.host != b.host and a.host and b.host:
        notes.append(f"recorded on different hosts: {a.host}, {b.host}")
    for name in ("torch", "jax", "jaxlib", "python"):
        if a.versions.get(name) != b.versions.get(name):
            notes.append(f"{name} {a.versions.get(name, 'unknown')} before, {b.versions.get(name, 'unknown')} after")
    for run, which in ((a, "before"), (b, "after")):
        if run.error:
            notes.append(f"the program {which} ended with {run.error}")
        elif not run.finished:
            notes.append(f"the recording {which} has no end: the program still runs, or was killed")
        for why, count in run.dropped.items():
            notes.append(f"{plural(count, 'event')} of the recording {which} missing ({why})")
        notes += [f"the recording {which}: {note}" for note in run.notes]
    return notes


# -- steps


def _steps(before: Run, after: Run, one: Report, two: Report, tolerance: float) -> Iterator[StepChange]:
    """The changes of the steps that both runs have."""
    of_second = {_key(stat): stat for stat in two.steps}
    for first in one.steps:
        second = of_second.get(_key(first))
        if second is None:
            continue
        (lengths, worth), (lengths_after, worth_after) = _durations(before, first), _durations(after, second)
        change = shift(lengths, lengths_after, (worth, worth_after)) if first.median_s > 0 else None
        by = low = high = None
        verdict = "unknown"
        if change is not None:
            by, low, high = (value / first.median_s for value in (change.by, change.low, change.high))
            verdict = "same" if not change.certain or abs(by) <= tolerance else "slower" if by > 0 else "faster"
        yield StepChange(first.name, first.median_s, second.median_s, first.count, second.count, by, low, high, verdict)


def _durations(run: Run, stat: StepStats) -> tuple[list[float], float]:
    """The lengths of the steps without the first, and the number of independent values they are worth."""
    for name, tally in run.steps.items():
        if (not name) == stat.inferred and (not name or run.names.text(name) == stat.name):
            lengths = [ns / 1e9 for ns in tally.rest.sample(_SAMPLE)]
            return lengths, independent(stat.recent_s, tally.rest.count)
    return [], 0.0


def _key(stat: StepStats) -> tuple[str, bool]:
    return stat.name, stat.inferred


def _named(steps: Sequence[StepStats]) -> str:
    return ", ".join("those between barriers" if stat.inferred else repr(stat.name) for stat in steps)


# -- other quantities


def _figures(run: Run, report: Report) -> list[tuple[str, str, float]]:
    """Name, unit and value of each quantity."""
    named = any(not stat.inferred for stat in report.steps)
    reads = sum(reads for _, reads in reads_in_steps(run, named)) if report.steps else 0
    on_the_cpu = sum(count for name, count in report.counters.items() if name.startswith("aten::"))
    return [
        ("first step", "s", report.steps[0].first_s if report.steps else 0.0),
        ("compile time", "s", run.compile_bill.total / 1e9),
        ("compiles", "", run.compile_bill.count),
        ("transfers per step", "", reads / _step_count(report)),
        ("operations on the CPU", "", on_the_cpu),
        ("device idle", "share", report.idle.idle_ratio),
    ]


# -- findings


def _findings(
    one: Report, two: Report
) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[Pair, ...], tuple[Pair, ...]]:
    mine = {finding.id: finding for finding in one.findings}
    theirs = {finding.id: finding for finding in two.findings}
    pairs = [Pair(mine[id], theirs[id]) for id in mine if id in theirs]
    gone = [finding for finding in one.findings if finding.id not in theirs]
    new = [finding for finding in two.findings if finding.id not in mine]
    if program(one.run) != program(two.run):  # ids hold the file's name, which changed with the program's
        for finding in list(gone):
            twin = next((other for other in new if _alike(finding) == _alike(other)), None)
            if twin is not None:
                pairs.append(Pair(finding, twin))
                gone.remove(finding)
                new.remove(twin)
    counts = _step_count(one), _step_count(two)
    changed = [pair for pair in pairs if _differ(pair, *counts, one)]
    kept = [pair for pair in pairs if pair not in changed]
    return tuple(gone), tuple(new), tuple(changed), tuple(kept)


def _alike(finding: Finding) -> tuple[str, str, str, str]:
    return finding.kind, finding.place.func, finding.place.code, finding.operation


def _differ(pair: Pair, steps_before: int, steps_after: int, report: Report) -> bool:
    """Whether count (in all and per step: a longer run has more of everything) or cost per step differ."""
    a, b = pair.before, pair.after
    if a.severity != b.severity:
        return True
    rates = a.count / steps_before, b.count / steps_after
    if not _near(a.count, b.count, _COUNTS_ALIKE) and not _near(*rates, _COUNTS_ALIKE):
        return True
    step = report.steps[0].median_s if report.steps else 0.0
    costs = a.cost_s / steps_before, b.cost_s / steps_after
    matters = abs(costs[0] - costs[1]) > _MATTERS * step
    return matters and not _near(*costs, _COSTS_ALIKE) and not _near(
        a.cost_s, b.cost_s, _COSTS_ALIKE
    )  # fmt: skip


def _near(a: float, b: float, share: float) -> bool:
    return abs(a - b) <= share * max(a, b)


def _step_count(report: Report) -> int:
    return max(1, sum(stat.count for stat in report.steps))


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _by(change: StepChange) -> str:
    return f"{abs(change.by or 0.0):.0%}" if abs(change.by or 0.0) >= 0.1 else f"{abs(change.by or 0.0):.1%}"
