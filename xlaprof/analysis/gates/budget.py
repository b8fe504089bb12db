"""Holding a run to a budget: the use of each limit, and the lines that used it.

Events are counted, not findings: a compile that is no finding counts all the same. Where a finding stands on the line
to blame, its words explain the breach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from xlaprof.analysis.findings import kinds
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import SEVERITIES, Finding, Place, Report
from xlaprof.analysis.run import Run
from xlaprof.analysis.sums import grouped
from xlaprof.events import AnyEvent, GraphBreak, JitCompile, Live, Recompile
from xlaprof.text.quantities import duration, plural, size_text, times
from xlaprof.text.strings import path_line, printable

from .limits import LIMITS, Budget, BudgetError
from .warm_up import Read, after_step

_Event = TypeVar("_Event", GraphBreak, JitCompile, Live, Recompile)
_Item = TypeVar("_Item")

_SHOWN = 5  # findings named for a limit that counts what many of them cause


class Offence(msgspec.Struct, frozen=True):
    """A line that used up a limit: its finding, or a description made from the events where there is none."""

    kind: str
    id: str  # of the finding; "" where there is none
    place: Place
    count: int
    cause: str
    advice: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The same for the same offence in another log."""
        return self.kind, self.id, self.place.file, self.place.line


class Used(msgspec.Struct, frozen=True):
    """A run's use of one limit."""

    budget: str  # a name of LIMITS
    limit: float
    value: float
    text: str  # "3 recompilations, 0 allowed"
    broken: bool
    offences: tuple[Offence, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """A run held to a budget."""

    path: str
    rank: int
    steps: int  # that counted
    used: tuple[Used, ...]  # every limit of the budget
    warnings: tuple[str, ...] = ()  # what makes the figures less than certain

    @property
    def breaches(self) -> tuple[Used, ...]:
        return tuple(used for used in self.used if used.broken)

    @property
    def kept(self) -> bool:
        return not self.breaches


class Damage(NamedTuple):
    """What a reader could not read."""

    notes: tuple[str, ...] = ()
    skipped: int = 0  # damaged lines, each of which may have been any event


def judge(read: Read, budget: Budget, path: str = "", damage: Callable[[], Damage] = Damage) -> Verdict:
    """Hold the recording that ``read`` gives to ``budget``.

    ``damage``: called after reading, returns the reader's. Raises :class:`BudgetError` where the recording does
    not show whether a limit was kept: a gate in doubt must not let pass.
    """
    case = _Case(read, budget, path, damage)
    used = tuple(_hold(case, limit.name) for limit in LIMITS if limit.limits and budget.given(limit.name))
    verdict = Verdict(path=path, rank=case.report.run.rank, steps=case.steps, used=used, warnings=case.warnings())
    if verdict.kept and case.lacks and not budget.allow_dropped:
        raise BudgetError(
            f"{path} {' and '.join(case.lacks)}, so what it keeps may be broken: "
            "record again, or let it pass by what it has with --allow-dropped (allow_dropped)"
        )
    return verdict


def lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Text on the limits that were broken, each with the lines to blame and the advice.

    Each limit and each line is explained once for all logs (mostly ranks of one program).
    """
    shown: list[str] = []
    seen = set()
    for name in dict.fromkeys(used.budget for verdict in verdicts for used in verdict.breaches):
        broken = [(verdict, used) for verdict in verdicts for used in verdict.breaches if used.budget == name]
        if len(verdicts) == 1:
            shown.append(f"{name}: {broken[0][1].text}")
        else:
            shown.append(f"{name}, broken by {len(broken)} of {len(verdicts)}")
            shown += [f"  {verdict.path}: {used.text}" for verdict, used in broken]
        for key, offence in {one.key: one for _, used in broken for one in used.offences}.items():
            place = offence.place
            where = path_line(place.file, place.line)
            which = f"{offence.kind}{f' {offence.id}' if offence.id else ''}"
            if key in seen:
                shown.append(f"  {where}  {which}, see above")
                continue
            seen.add(key)
            shown.append(f"  {where}{f'  {place.code}' if place.code else ''}")
            shown.append(f"    {which}: {offence.cause}")
            shown.append(f"    Fix: {offence.advice}")
    return [printable(line) for line in shown]


def reads_in_steps(run: Run, named: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """Reads (stack and operation) with their number inside steps; between barriers where steps have no names."""
    for key, tally in run.reads.items():
        reads = tally.in_steps if named else tally.looped
        if reads > 0:
            yield key, reads


class _Case:
    """A run, the part of it that counts, and the reports of both."""

    def __init__(self, read: Read, budget: Budget, path: str, damage: Callable[[], Damage]) -> None:
        self.budget, self.path = budget, path
        self._kept: list[GraphBreak | JitCompile | Live | Recompile] = []  # those that the analysis keeps only in part
        self.run = self.counted = Run().feed_all(self._keeping(read())).settled()
        self.begin: int | None = None  # of what counts; None: all does
        if budget.after_step is not None:
            self.counted, self.begin = after_step(read, self.run, budget.after_step, path)
        damaged = damage()
        self.report: Report = self.run.report(path, damaged.notes)
        self.after: Report = self.report if self.counted is self.run else self.counted.report(path)
        self.lacks: list[str] = []
        if dropped := self.report.run.lacks:
            self.lacks.append(f"lacks {plural(dropped, 'event')} that the recording dropped")
        if damaged.skipped:
            self.lacks.append(f"has {plural(damaged.skipped, 'damaged line')}")
        self.steps = sum(stat.count for stat in self.after.steps)
        self.named = any(not stat.inferred for stat in self.after.steps)

    def _keeping(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            if isinstance(event, GraphBreak | JitCompile | Live | Recompile):
                self._kept.append(event)
            yield event

    def warnings(self) -> tuple[str, ...]:
        warnings = [f"{plural(count, 'event')} missing ({why})" for why, count in self.report.run.dropped.items()]
        if self.report.run.error:
            warnings.append(f"the program ended with {self.report.run.error}")
        elif not self.report.run.finished:
            warnings.append("no end of the recording: the program still runs, or was killed")
        return (*warnings, *self.report.run.notes)

    def events(self, kind: type[_Event]) -> Iterator[_Event]:
        """The events of this kind that count."""
        begin = self.begin
        return (event for event in self._kept if isinstance(event, kind) and (begin is None or event.t >= begin))

    def compiles(self) -> list[CompileRecord]:
        """Those that count, with what the whole run knows of them."""
        return [record for record in self.run.compiles if self.begin is None or record.t >= self.begin]

    def by_line(self, items: Iterable[tuple[int, _Item]], run: Run | None = None) -> list[tuple[Place, list[_Item]]]:
        """Items by the line of their stack (an id of ``run``, by default of the whole run)."""
        names = (run or self.run).names
        groups = grouped(items, lambda one: names.place(one[0]).at).values()
        return [(names.place(group[0][0]), [item for _, item in group]) for group in groups]

    # -- who is to blame

    def worst(self, limit: str = "") -> tuple[Offence, ...]:
        """The findings, of all kinds or of those to blame for a limit, whose fix gives back most."""
        blamed = _blamed(limit) if limit else kinds().keys()
        return tuple(_offence(finding) for finding in self.report.findings if finding.kind in blamed)[:_SHOWN]

    def at(self, limit: str, place: Place, count: int, cause: str, advice: str) -> Offence:
        """The finding on the line that breaks the limit, else one made of the events."""
        blamed = _blamed(limit)
        for finding in self.report.findings:
            for one in (finding, *finding.parts):
                if one.kind in blamed and one.place.at == place.at:
                    return _offence(one)
        return Offence(_unit(limit), "", place, count, cause, advice)


def _unit(limit: str) -> str:
    """The kind of findings that counts the same events as the limit."""
    return next(name for name, kind in kinds().items() if limit in kind.unit_of)


def _blamed(limit: str) -> frozenset[str]:
    """The kinds of findings that break a limit."""
    return frozenset(name for name, kind in kinds().items() if limit in (*kind.unit_of, *kind.blamed_for))


def _offence(finding: Finding) -> Offence:
    return Offence(finding.kind, finding.id, finding.place, finding.count, finding.cause, finding.advice)


# -- one function for each limit ----------------------------------------------------------------------


class _Measured(NamedTuple):
    value: float
    text: str
    #: the lines that used up the limit; a function: those to blame once it is broken
    offences: Iterable[Offence] | Callable[[], Iterable[Offence]]


def _hold(case: _Case, name: str) -> Used:
    measure, shown = _MEASURES[name]
    limit = getattr(case.budget, name) if shown else 0
    measured = measure(case)
    broken = measured.value > limit
    offences = measured.offences
    if callable(offences):
        offences = offences() if broken else ()
    allowed = shown(limit) if shown else "none"
    return Used(name, limit, measured.value, f"{measured.text}, {allowed} allowed", broken, tuple(offences))


def _recompiles(case: _Case) -> _Measured:
    offences: Iterable[Offence]
    if case.counted is case.run:
        recompiles = [finding for finding in case.report.findings if finding.kind == _unit("max_recompiles")]
        count = sum(finding.count for finding in recompiles)
        offences = map(_offence, recompiles)
    else:
        # A barrier reached before had its first graph then, compiled or known from before the recording.
        # torch.compile reports its recompilations itself: the parts of a function are compiled at one line, too.
        again = [one for one in case.compiles() if (one.nth or one.visits) and one.trigger != "dynamo"]
        guards = [event for event in case.events(Recompile) if not event.fresh]
        changed = [event for event in case.events(JitCompile) if event.changes]
        # the run keeps a bounded number of records; all compiles beyond them are repetitions
        count = len(again) + len(guards) + len(changed) + max(0, case.run.compile_bill.count - len(case.run.compiles))
        offences = (*_compiled(case, "max_recompiles", again), *_guarded(case, guards))
        offences += tuple(_jitted(case, "max_recompiles", changed))
    return _Measured(count, plural(count, "recompilation"), offences)


def _compiles(case: _Case) -> _Measured:
    programs = list(case.events(JitCompile))
    count = case.counted.compile_bill.count + len(programs)
    offences = *_compiled(case, "max_compiles", case.compiles()), *_jitted(case, "max_compiles", programs)
    return _Measured(count, plural(count, "compile"), offences)


def _compile_time(case: _Case) -> _Measured:
    programs = list(case.events(JitCompile))
    value = (case.counted.compile_bill.total + sum(program.dur for program in programs)) / 1e9
    blamed = *_compiled(case, "max_compile_time", case.compiles()), *_jitted(case, "max_compile_time", programs)
    return _Measured(value, f"{duration(value)} of compiling", blamed)


def _compiled(case: _Case, limit: str, records: list[CompileRecord]) -> Iterator[Offence]:
    changed = ((one.change.stack if one.change and one.change.stack else one.stack, one) for one in records)
    for place, group in sorted(case.by_line(changed), key=lambda line: -sum(record.dur for record in line[1])):
        first = group[0]
        change = first.change
        why = f": {change.what} {change.old} -> {change.new}" if change else ""
        when = f"step {first.step}" if first.step >= 0 else "before the first step"
        spent = duration(sum(record.dur for record in group) / 1e9)
        cause = f"A graph was compiled {times(len(group))} ({spent}), first in {when}{why}."
        advice = (
            "Keep what the graph depends on the same in every step, or have it compiled in warm-up."
            if change
            else "Run this once in warm-up, so that it is compiled there."
        )
        yield case.at(limit, place, len(group), cause, advice)


def _jitted(case: _Case, limit: str, events: list[JitCompile]) -> Iterator[Offence]:
    """Programs of JAX, by the line that called."""
    for place, group in case.by_line((event.stack, event) for event in events):
        change = next((event.changes[0] for event in group if event.changes), None)
        why = f": {change.name or change.kind} was {change.old or '?'}, then {change.new or '?'}" if change else ""
        name = case.run.names.text(group[0].func) or "a function"
        spent = duration(sum(event.dur for event in group) / 1e9)
        cause = f"JAX compiled {name} {times(len(group))} ({spent}){why}."
        advice = "Call it with the same shapes, dtypes and static values, or once for each in warm-up."
        yield case.at(limit, place, len(group), cause, advice)


def _guarded(case: _Case, events: list[Recompile]) -> Iterator[Offence]:
    """Recompilations of torch.compile, by the line that made the guard, else the one that called the function."""
    blamed = (((event.guards[0].stack if event.guards else 0) or event.stack, event) for event in events)
    for place, group in case.by_line(blamed):
        guard = group[0].guards[0] if group[0].guards else None
        why = f": {guard.subject or guard.kind} was {guard.old}, then {guard.new}" if guard else ""
        name = case.run.names.text(group[0].func)
        cause = f"torch.compile compiled {name or 'a function'} again {times(len(group))}{why}."
        advice = "Keep what the guard asks for the same in every call, or mark it dynamic."
        yield case.at("max_recompiles", place, len(group), cause, advice)


def _transfers(case: _Case) -> _Measured:
    if not case.steps:
        raise _no_steps(case, "max_transfers_per_step")
    counted = case.counted
    if not (case.report.run.platform or case.run.barriers or case.run.executed.count or case.run.reads):
        raise BudgetError(  # of programs of JAX and torch.compile no reads are recorded
            f"{case.path} holds nothing of an xla device, so max_transfers_per_step cannot be checked: "
            "leave it out for this program"
        )
    reads = [(stack, (count, op)) for (stack, op), count in reads_in_steps(counted, case.named)]
    offences = []
    for place, group in case.by_line(reads, counted):
        here = sum(count for count, _ in group)
        name = counted.names.text(group[-1][1])
        what = f" ({name})" if name else ""
        cause = f"A value was read from the device {times(here)}{what}, in {plural(case.steps, 'step')}."
        advice = "Keep the value on the device, or read it after the loop."
        offences.append((here, case.at("max_transfers_per_step", place, here, cause, advice)))
    offences.sort(key=lambda one: -one[0])
    count = sum(here for here, _ in offences)
    value = count / case.steps
    each = plural(1, "transfer") if value == 1 else f"{value:.3g} transfers"
    text = f"{each} per step ({count:,} in {plural(case.steps, 'step')})"
    return _Measured(value, text, [offence for _, offence in offences])


def _graph_breaks(case: _Case) -> _Measured:
    breaks = [event for event in case.events(GraphBreak) if not event.by_design]
    offences = [
        case.at(
            "max_graph_breaks",
            place,
            len(group),
            f"The compiled function was cut in two {times(len(group))}: "
            f"{' '.join(group[-1].reason.split()).rstrip('.')}.",
            "Move this line out of the compiled function.",
        )
        for place, group in case.by_line((event.stack, event) for event in breaks)
    ]
    return _Measured(len(breaks), plural(len(breaks), "graph break"), offences)


def _idle(case: _Case) -> _Measured:
    idle = case.after.idle
    if idle.window_s <= 0:
        raise BudgetError(
            f"{case.path} holds no executions of a device, so max_idle cannot be checked: leave it out for this program"
        )
    causes = ", ".join(f"{cause} {duration(spent)}" for cause, spent in idle.causes[:3])
    why = f" ({causes})" if causes else ""
    text = f"the device idled {idle.idle_ratio:.1%} of {duration(idle.window_s)}{why}"
    return _Measured(idle.idle_ratio, text, lambda: case.worst("max_idle"))


def _step_time(case: _Case) -> _Measured:
    if not case.after.steps:
        raise _no_steps(case, "max_step_time")
    step = case.after.steps[0]
    text = f"a {step.name} step took {duration(step.median_s)} (median of {step.count:,})"
    return _Measured(step.median_s, text, case.worst)


def _memory(case: _Case) -> _Measured:
    readings = [event.bytes for event in case.events(Live)]
    if not readings:
        raise BudgetError(f"{case.path} holds no figures of memory, so max_memory cannot be checked: leave it out")
    text = f"at most {size_text(max(readings))} in {plural(len(readings), 'reading')}"
    return _Measured(max(readings), text, lambda: case.worst("max_memory"))


def _fallback(case: _Case) -> _Measured:
    text = case.counted.names.text
    counts = {key: one.count for key, one in case.counted.fallbacks.items() if one.count > 0}
    ran = ((text(op), (stack, count)) for (stack, op), count in counts.items())
    fallbacks = grouped(
        (one for one in ran if one[0] != "aten::_local_scalar_dense"), lambda one: one[0]
    )  # it is a read
    offences = [
        case.at(
            "no_fallback",
            place,
            sum(counts),
            f"{name} has no lowering, so it ran on the CPU {times(sum(counts))}.",
            f"Replace {name.removeprefix('aten::').partition('.')[0]} by operations that run on the device.",
        )
        for name, items in fallbacks.items()
        for place, counts in case.by_line((item for _, item in items), case.counted)
    ]
    count = sum(count for items in fallbacks.values() for _, (_, count) in items)
    return _Measured(count, f"{plural(count, 'operation')} ran on the CPU for want of a lowering", offences)


def _no_findings(case: _Case) -> _Measured:
    least, ignored = case.budget.no_findings, case.budget.ignore
    severities = SEVERITIES[: SEVERITIES.index(least) + 1]
    found = [
        finding
        for finding in case.report.findings
        if finding.severity in severities and finding.kind not in ignored and finding.id not in ignored
    ]
    worse = "" if least == SEVERITIES[-1] else f" of severity {least} or worse"
    return _Measured(len(found), f"{plural(len(found), 'finding')}{worse}", map(_offence, found))


#: how each limit is measured, and how its value is written; None: a yes-or-no limit, which allows none
_MEASURES: dict[str, tuple[Callable[[_Case], _Measured], Callable[[float], str] | None]] = {
    "max_recompiles": (_recompiles, str),
    "max_compiles": (_compiles, str),
    "max_compile_time": (_compile_time, duration),
    "max_transfers_per_step": (_transfers, "{:g}".format),
    "max_graph_breaks": (_graph_breaks, str),
    "max_idle": (_idle, "{:.1%}".format),
    "max_step_time": (_step_time, duration),
    "max_memory": (_memory, size_text),
    "no_fallback": (_fallback, None),
    "no_findings": (_no_findings, None),
}


def _no_steps(case: _Case, name: str) -> BudgetError:
    return BudgetError(
        f"{case.path} has no steps, so {name} cannot be checked: "
        "name them (xlaprof.StepTrace) or end them with a barrier"
    )
