"""Holding a run to a budget: what it used of each limit, and the lines that used it.

Counts are those of the events, not of the findings: a compile that no finding tells of counts all the same. Findings
are where the words come from: what is to blame for a limit that was broken is told as they tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from xlaprof.analysis.findings import kinds
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.model import SEVERITIES, Finding, Place, Report
from xlaprof.analysis.run import Run
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Device,
    Dropped,
    End,
    GraphBreak,
    Header,
    Live,
    Recompile,
    Stack,
    Step,
    StepDigest,
    Text,
    Thread,
)
from xlaprof.text.quantities import duration, plural, size_text, times
from xlaprof.text.strings import path_line, printable

from .limits import LIMITS, Budget, BudgetError

#: Gives the events of a recording from its beginning, each time it is called.
Read = Callable[[], Iterable[AnyEvent]]

_Event = TypeVar("_Event", GraphBreak, Live, Recompile)

#: what tells of ids and of the recording, and is no part of what happened when
_ABOUT = (Header, Device, Text, Stack, Thread, Dropped, End)

_SHOWN = 5  # findings named for a limit that counts what many of them cause


class Offence(msgspec.Struct, frozen=True):
    """A line that used up a limit: a finding, or what the events say where there is none."""

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
    """What a run used of one limit."""

    budget: str  # a name of LIMITS
    limit: float
    value: float
    told: str  # "3 recompilations, 0 allowed"
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


def judge(read: Read, budget: Budget, path: str = "", notes: Callable[[], tuple[str, ...]] = tuple) -> Verdict:
    """Hold the recording that ``read`` gives to ``budget``.

    ``notes``: asked after reading, what the reader has to say. Raises :class:`BudgetError` where the recording cannot
    tell whether a limit was kept: a gate that does not know must not let pass.
    """
    kept: list[GraphBreak | Live | Recompile] = []
    run = Run().feed_all(_keeping(read(), kept)).settled()
    counted, begin = (run, None) if budget.after_step is None else _after(read, run, budget.after_step, path)
    case = _Case(run, counted, begin, kept, path, notes())
    asked = [limit.name for limit in LIMITS if limit.limits and budget.given(limit.name)]
    used = tuple(_MEASURES[name](case, budget) for name in asked)
    return Verdict(path=path, rank=case.report.run.rank, steps=case.steps, used=used, warnings=case.warnings())


def lines(verdicts: Sequence[Verdict]) -> list[str]:
    """The limits that were broken, for people, each with the lines to blame and what to change there.

    Of several logs, ranks of one program mostly, each limit and each line is told once.
    """
    told: list[str] = []
    seen = set()
    for name in dict.fromkeys(used.budget for verdict in verdicts for used in verdict.breaches):
        broken = [(verdict, used) for verdict in verdicts for used in verdict.breaches if used.budget == name]
        if len(verdicts) == 1:
            told.append(f"{name}: {broken[0][1].told}")
        else:
            told.append(f"{name}, broken by {len(broken)} of {len(verdicts)}")
            told += [f"  {verdict.path}: {used.told}" for verdict, used in broken]
        for key, offence in {one.key: one for _, used in broken for one in used.offences}.items():
            place = offence.place
            where = path_line(place.file, place.line)
            which = f"{offence.kind}{f' {offence.id}' if offence.id else ''}"
            if key in seen:
                told.append(f"  {where}  {which}, see above")
                continue
            seen.add(key)
            told.append(f"  {where}{f'  {place.code}' if place.code else ''}")
            told.append(f"    {which}: {offence.cause}")
            told.append(f"    Fix: {offence.advice}")
    return list(map(printable, told))


def reads_in_steps(run: Run, named: bool) -> Iterator[tuple[tuple[int, int], int]]:
    """How often each read (its stack and operation) came in a step; between barriers, where steps have no names."""
    for key, tally in run.reads.items():
        reads = tally.in_steps if named else tally.looped
        if reads > 0:
            yield key, reads


# -- what comes after a step --------------------------------------------------------------------------


def _after(read: Read, run: Run, step: int, path: str) -> tuple[Run, int]:
    """The part of the recording after the end of step ``step``, and when that was."""
    if any(name for name in run.steps):
        begins: list[int] = []
        rest = Run(since_step=step + 1).feed_all(_noting(read(), step, begins))
        if rest.waiting or not any(tally.count for tally in rest.steps.values()):
            raise BudgetError(f"{path} has no step after {step} (the last one is {run.step_num}): nothing to check")
        return rest.settled(), begins[0]
    pace = _pace(run)
    rest, begin = _following(read(), pace, step)
    if not any(tally.count for tally in rest.steps.values()):
        raise BudgetError(
            f"{path} has no step after {step} (no named ones, and {run.sites[pace].executed} up to a barrier): "
            "nothing to check"
            if pace
            else f"{path} has neither named steps nor barriers, so there is nothing after step {step} to check"
        )
    return rest.settled(), begin


def _noting(events: Iterable[AnyEvent], step: int, begins: list[int]) -> Iterator[AnyEvent]:
    """Passes the events on, and notes when step ``step`` ended, or one with a higher number began."""
    for event in events:
        if not begins and isinstance(event, Step | StepDigest) and event.num >= step:
            begins.append(event.t + event.dur if event.num == step else event.t)
        yield event


def _pace(run: Run) -> int:
    """The barrier between whose visits a step lies where steps have no names; 0: there is none."""
    sites = {stack: site.executed for stack, site in run.sites.items() if site.trigger != "read" and site.executed}
    return max(sites, key=lambda stack: sites[stack], default=0)


def _following(events: Iterable[AnyEvent], pace: int, step: int) -> tuple[Run, int]:
    """What comes after visit ``step + 1`` of the barrier ``pace``, and when that was."""
    rest = Run()
    visits = 0
    begin: int | None = None
    for event in events:
        if isinstance(event, _ABOUT):
            rest.feed(event)
        elif begin is not None:
            if getattr(event, "t", begin) >= begin:  # an execution is told late
                rest.feed(event)
        elif isinstance(event, Barrier) and event.stack == pace and event.execution and event.trigger != "read":
            visits += 1
            if visits == step + 1:
                begin = event.t + event.dur
                rest.resume(begin)
    return rest, begin or 0


def _keeping(events: Iterable[AnyEvent], kept: list[GraphBreak | Live | Recompile]) -> Iterator[AnyEvent]:
    """Passes the events on, and keeps those of which the analysis keeps less than all."""
    for event in events:
        if isinstance(event, GraphBreak | Live | Recompile):
            kept.append(event)
        yield event


class _Case:
    """A run, the part of it that counts, and what was made of both."""

    def __init__(
        self,
        run: Run,
        counted: Run,
        begin: int | None,
        kept: list[GraphBreak | Live | Recompile],
        path: str,
        notes: tuple[str, ...],
    ) -> None:
        self.run = run
        self.begin = begin  # of what counts; None: all does
        self._kept = kept
        self.counted = counted
        self.path = path
        self.report: Report = run.report(path, notes)
        self.after: Report = self.report if counted is run else counted.report(path)
        self.steps = sum(stat.count for stat in self.after.steps)
        self.named = any(not stat.inferred for stat in self.after.steps)

    def warnings(self) -> tuple[str, ...]:
        told = [f"{count:,} events are missing ({why})" for why, count in self.report.run.dropped.items()]
        if self.report.run.error:
            told.append(f"the program ended with {self.report.run.error}")
        elif not self.report.run.finished:
            told.append("no end of the recording: the program still runs, or was killed")
        return (*told, *self.report.run.notes)

    def told(self, kind: type[_Event]) -> Iterator[_Event]:
        """The events of this kind that count."""
        begin = self.begin
        return (event for event in self._kept if isinstance(event, kind) and (begin is None or event.t >= begin))

    # -- who is to blame

    def worst(self, limit: str = "") -> tuple[Offence, ...]:
        """The findings, of all kinds or of those to blame for a limit, whose fix gives back most."""
        blamed = _blamed(limit) if limit else kinds().keys()
        return tuple(_offence(finding) for finding in self.report.findings if finding.kind in blamed)[:_SHOWN]

    def at(self, limit: str, place: Place, count: int, cause: str, advice: str) -> Offence:
        """The finding on the line that breaks the limit, else one made of the events."""
        blamed = _blamed(limit)
        for finding in self.report.findings:
            if finding.kind in blamed and (finding.place.file, finding.place.line) == (place.file, place.line):
                return _offence(finding)
        kind = next(name for name, kind in kinds().items() if limit in kind.unit_of)
        return Offence(kind, "", place, count, cause, advice)

    def compiles(self) -> list[CompileRecord]:
        """Those that count, with what the whole run knows of them."""
        if self.begin is None:
            return self.run.compiles
        return [record for record in self.run.compiles if record.t >= self.begin]


def _blamed(limit: str) -> frozenset[str]:
    """The kinds of findings that break a limit."""
    return frozenset(name for name, kind in kinds().items() if limit in (*kind.unit_of, *kind.blamed_for))


def _offence(finding: Finding) -> Offence:
    return Offence(finding.kind, finding.id, finding.place, finding.count, finding.cause, finding.advice)


# -- one function for each limit ----------------------------------------------------------------------


def _recompiles(case: _Case, budget: Budget) -> Used:
    limit = budget.max_recompiles or 0
    if case.counted is case.run:
        recompiles = [finding for finding in case.report.findings if finding.kind == "recompile"]
        count = sum(finding.count for finding in recompiles)
        offences = tuple(map(_offence, recompiles))
    else:
        # what torch.compile has compiled again it says itself: the parts of a function are compiled at one line, too
        # (a barrier that was reached before had its first graph then, compiled or known from before the recording)
        again = [one for one in case.compiles() if (one.nth or one.visits) and one.trigger != "dynamo"]
        guards = [event for event in case.told(Recompile) if not event.fresh]
        # records are kept up to a number that only repetition reaches
        count = len(again) + len(guards) + max(0, case.run.compile_bill.count - len(case.run.compiles))
        offences = (*_compiled(case, "max_recompiles", again), *_guarded(case, guards))
    told = f"{plural(count, 'recompilation')}, {limit} allowed"
    return Used("max_recompiles", limit, count, told, count > limit, offences)


def _compiles(case: _Case, budget: Budget) -> Used:
    limit = budget.max_compiles or 0
    count = case.counted.compile_bill.count
    offences = _compiled(case, "max_compiles", case.compiles())
    return Used("max_compiles", limit, count, f"{plural(count, 'compile')}, {limit} allowed", count > limit, offences)


def _compiled(case: _Case, limit: str, records: list[CompileRecord]) -> tuple[Offence, ...]:
    groups: dict[tuple[str, int], list[tuple[CompileRecord, Place]]] = {}
    for record in records:
        place = case.run.names.place(record.change.stack if record.change and record.change.stack else record.stack)
        groups.setdefault((place.file, place.line), []).append((record, place))
    offences = []
    for group in sorted(groups.values(), key=lambda group: -sum(record.dur for record, _ in group)):
        first, place = group[0]
        change = first.change
        why = f": {change.what} {change.old} -> {change.new}" if change else ""
        when = f"step {first.step}" if first.step >= 0 else "before the first step"
        spent = duration(sum(record.dur for record, _ in group) / 1e9)
        cause = f"A graph was compiled {times(len(group))} ({spent}), first in {when}{why}."
        advice = (
            "Keep what the graph depends on the same in every step, or have it compiled in warm-up."
            if change
            else "Run this once in warm-up, so that it is compiled there."
        )
        offences.append(case.at(limit, place, len(group), cause, advice))
    return tuple(offences)


def _guarded(case: _Case, events: list[Recompile]) -> tuple[Offence, ...]:
    """What torch.compile compiled again, by the line that made the guard, else the one that called the function."""
    groups: dict[tuple[str, int], tuple[Place, list[Recompile]]] = {}
    for event in events:
        blamed = event.guards[0].stack if event.guards else 0
        place = case.run.names.place(blamed or event.stack)
        groups.setdefault((place.file, place.line), (place, []))[1].append(event)
    offences = []
    for place, group in groups.values():
        guard = group[0].guards[0] if group[0].guards else None
        why = f": {guard.subject or guard.kind} was {guard.old}, then {guard.new}" if guard else ""
        name = case.run.names.text(group[0].func)
        cause = f"torch.compile compiled {name or 'a function'} again {times(len(group))}{why}."
        advice = "Keep what the guard asks for the same in every call, or mark it dynamic."
        offences.append(case.at("max_recompiles", place, len(group), cause, advice))
    return tuple(offences)


def _compile_time(case: _Case, budget: Budget) -> Used:
    limit = budget.max_compile_time or 0.0
    value = case.counted.compile_bill.total / 1e9
    told = f"{duration(value)} of compiling, {duration(limit)} allowed"
    broken = value > limit
    offences = _compiled(case, "max_compile_time", case.compiles()) if broken else ()
    return Used("max_compile_time", limit, value, told, broken, offences)


def _transfers(case: _Case, budget: Budget) -> Used:
    limit = budget.max_transfers_per_step or 0.0
    if not case.steps:
        raise _no_steps(case, "max_transfers_per_step")
    counted = case.counted
    count = 0
    offences = []
    groups: dict[tuple[str, int], tuple[Place, int, str]] = {}
    for (stack, op), reads in reads_in_steps(counted, case.named):
        count += reads
        place = counted.names.place(stack)
        _, before, _ = groups.get((place.file, place.line), (place, 0, ""))
        groups[place.file, place.line] = (place, before + reads, counted.names.text(op))
    for place, reads, name in sorted(groups.values(), key=lambda group: -group[1]):
        what = f" ({name})" if name else ""
        cause = f"A value was read from the device {times(reads)}{what}, in {case.steps:,} steps."
        advice = "Keep the value on the device, or read it after the loop."
        offences.append(case.at("max_transfers_per_step", place, reads, cause, advice))
    value = count / case.steps
    told = f"{value:.3g} transfers per step ({count:,} in {case.steps:,} steps), {limit:g} allowed"
    return Used("max_transfers_per_step", limit, value, told, value > limit, tuple(offences))


def _graph_breaks(case: _Case, budget: Budget) -> Used:
    limit = budget.max_graph_breaks or 0
    groups: dict[tuple[str, int], tuple[Place, int, str]] = {}
    for event in case.told(GraphBreak):
        if event.by_design:
            continue
        place = case.run.names.place(event.stack)
        _, before, _ = groups.get((place.file, place.line), (place, 0, ""))
        groups[place.file, place.line] = (place, before + 1, event.reason)
    count = sum(number for _, number, _ in groups.values())
    offences = [
        case.at(
            "max_graph_breaks",
            place,
            number,
            f"The compiled function was cut in two {times(number)}: {' '.join(reason.split()).rstrip('.')}.",
            "Move this line out of the compiled function.",
        )
        for place, number, reason in groups.values()
    ]
    told = f"{plural(count, 'graph break')}, {limit} allowed"
    return Used("max_graph_breaks", limit, count, told, count > limit, tuple(offences))


def _idle(case: _Case, budget: Budget) -> Used:
    limit = budget.max_idle or 0.0
    idle = case.after.idle
    if idle.window_s <= 0:
        raise BudgetError(
            f"{case.path} holds no executions of a device, so max_idle cannot be checked: leave it out for this program"
        )
    causes = ", ".join(f"{cause} {duration(spent)}" for cause, spent in idle.causes[:3])
    why = f" ({causes})" if causes else ""
    told = f"the device idled {idle.idle_ratio:.1%} of {duration(idle.window_s)}{why}, {limit:.1%} allowed"
    broken = idle.idle_ratio > limit
    return Used("max_idle", limit, idle.idle_ratio, told, broken, case.worst("max_idle") if broken else ())


def _step_time(case: _Case, budget: Budget) -> Used:
    limit = budget.max_step_time or 0.0
    if not case.after.steps:
        raise _no_steps(case, "max_step_time")
    step = case.after.steps[0]
    told = f"a {step.name} step took {duration(step.median_s)} (median of {step.count:,}), {duration(limit)} allowed"
    broken = step.median_s > limit
    return Used("max_step_time", limit, step.median_s, told, broken, case.worst() if broken else ())


def _memory(case: _Case, budget: Budget) -> Used:
    limit = budget.max_memory or 0.0
    readings = [event.bytes for event in case.told(Live)]
    if not readings:
        raise BudgetError(f"{case.path} holds no figures of memory, so max_memory cannot be checked: leave it out")
    told = f"at most {size_text(max(readings))} in {plural(len(readings), 'reading')}, {size_text(limit)} allowed"
    broken = max(readings) > limit
    return Used("max_memory", limit, max(readings), told, broken, case.worst("max_memory") if broken else ())


def _fallback(case: _Case, budget: Budget) -> Used:
    counted = case.counted
    groups: dict[tuple[str, int, str], tuple[Place, int]] = {}
    for (stack, op), tally in counted.fallbacks.items():
        name = counted.names.text(op)
        if name == "aten::_local_scalar_dense" or tally.count <= 0:
            continue  # a read
        place = counted.names.place(stack)
        key = (place.file, place.line, name)
        groups[key] = (place, tally.count + (groups[key][1] if key in groups else 0))
    count = sum(number for _, number in groups.values())
    offences = [
        case.at(
            "no_fallback",
            place,
            number,
            f"{name} has no lowering, so it ran on the CPU {times(number)}.",
            f"Replace {name.removeprefix('aten::').partition('.')[0]} by operations that run on the device.",
        )
        for (_, _, name), (place, number) in groups.items()
    ]
    told = f"{plural(count, 'operation')} ran on the CPU for want of a lowering, none allowed"
    return Used("no_fallback", 0, count, told, count > 0, tuple(offences))


def _no_findings(case: _Case, budget: Budget) -> Used:
    severities = SEVERITIES[: SEVERITIES.index(budget.no_findings) + 1]
    found = [
        finding
        for finding in case.report.findings
        if finding.severity in severities and finding.kind not in budget.ignore and finding.id not in budget.ignore
    ]
    worse = "" if budget.no_findings == SEVERITIES[-1] else f" of severity {budget.no_findings} or worse"
    told = f"{plural(len(found), 'finding')}{worse}, none allowed"
    return Used("no_findings", 0, len(found), told, bool(found), tuple(map(_offence, found)))


_MEASURES: dict[str, Callable[[_Case, Budget], Used]] = {
    "max_recompiles": _recompiles,
    "max_compiles": _compiles,
    "max_compile_time": _compile_time,
    "max_transfers_per_step": _transfers,
    "max_graph_breaks": _graph_breaks,
    "max_idle": _idle,
    "max_step_time": _step_time,
    "max_memory": _memory,
    "no_fallback": _fallback,
    "no_findings": _no_findings,
}


def _no_steps(case: _Case, name: str) -> BudgetError:
    return BudgetError(
        f"{case.path} has no steps, so {name} cannot be checked: "
        "name them (xlaprof.StepTrace) or end them with a barrier"
    )
