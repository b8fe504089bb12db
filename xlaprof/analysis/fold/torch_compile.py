"""``torch.compile`` in a recording: graph breaks, versions of functions, their causes and costs.

One method per kind of event, each of constant cost and bounded memory; nothing is concluded here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import nlargest
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from xlaprof.analysis.names import Ids
from xlaprof.analysis.principles import HABIT, KEPT
from xlaprof.analysis.sums import RECORDS, Tally, add_bounded, kept
from xlaprof.events import (
    Autotune,
    Compile,
    CompileAsked,
    DynamoCompile,
    DynamoLimit,
    GeneratedCode,
    GraphBreak,
    GraphCalls,
    Recompile,
    TimedGraph,
)
from xlaprof.events.dynamo import SETTING

from .graph_calls.ran import Ran
from .tallies import StepTally

#: kinds of events that :meth:`TorchCompile.on` takes
TOLD = CompileAsked, Autotune, GeneratedCode, TimedGraph, GraphCalls

RAISED = "GB0088"  # the program's own exception leaves the function: this break loses nothing
_UNSUPPORTED = "Unsupported"  # Dynamo gives the function up, and the program goes on
_FEW = 8  # operations: as many come again by chance
_STEPS = 4  # names of steps that are looked at when a limit is hit


#: phases of the compiler behind Dynamo
_COMPILERS = ("Inductor", "kernels", "cache", "backend")

Part = tuple[int, int, int]  # Stack id of a function's definition, Text id of its name, Stack id of ``resumed``


class Took(NamedTuple):
    """A step."""

    number: int  # the so-manieth of its name
    dur: int  # ns, without compiling
    compiling: int  # ns beside it


class CacheKey(NamedTuple):
    """What the key of a graph in inductor's cache is made of: name and hash."""

    parts: Mapping[str, str]
    settings: Mapping[str, str]  # one mapping for all graphs between two changes


class BreakTally(Tally):
    """Graph breaks at one place for one reason. Nanoseconds."""

    event: GraphBreak  # the first
    step: int
    count: int = 0
    restarted: int = 0  # ns of tracing that it made useless
    #: code that Dynamo gave up because of it, with the line behind which: (definition, Text id, ``resumed``)
    plain: set[Part] = msgspec.field(default_factory=set)
    cut: set[Part] = msgspec.field(default_factory=set)  # code that is compiled all the same, in pieces
    inside: set[str] = msgspec.field(default_factory=set)  # what Dynamo could not leave half-way: "a loop"
    callers: set[int] = msgspec.field(default_factory=set)  # Stack ids of the lines that called the compiled function


class FunctionTally(Tally):
    """One function that ``torch.compile`` compiled, with the parts after its breaks. Nanoseconds."""

    name: int  # Text id
    step: int  # of its first compile
    backend: int  # Text id
    compiles: int = 0
    dur: int = 0  # XLA's part included
    ops: int = 0
    versions: int = 0  # graphs compiled, the backward ones not counted
    again: int = 0  # of which for another value, size, mode
    backwards: int = 0  # backward graphs compiled
    #: graphs compiled first after a reset that made PyTorch forget those before, and ns; by Stack id of its line
    forgotten: dict[int, int] = msgspec.field(default_factory=dict)
    forgotten_ns: dict[int, int] = msgspec.field(default_factory=dict)
    alike: int = 0  # first graphs of a part that have the operations of another part's graph before
    alike_ns: int = 0
    variable: int = 0  # graphs of which a size may be a variable
    cached: int = 0  # ns of those that the compiler behind Dynamo had in its cache
    unknown: int = 0  # ns of later versions, of which the recording does not say why
    graphs: set[str] = msgspec.field(default_factory=set)  # numbers of the frames that captured something
    plain: set[int] = msgspec.field(default_factory=set)  # Stack ids of ``resumed``: what follows runs as plain Python
    limit: DynamoLimit | None = None
    limited: int = 0  # the step in which that was hit
    steps_before: dict[int, list[Took]] = msgspec.field(default_factory=dict)  # the latest before that, by name
    callers: set[int] = msgspec.field(default_factory=set)
    phases: dict[str, int] = msgspec.field(default_factory=dict)  # ns of ``dur``, as far as they are known
    tuned: dict[str, int] = msgspec.field(default_factory=dict)  # ns of autotuning, by kernel or operation
    parts_most: int = 0  # into which DistributedDataParallel had one of them split, by its buckets
    bucket_most: int = 0  # bytes of a bucket
    spans: list[tuple[int, int]] = msgspec.field(default_factory=list)  # t and dur of each of its compilations
    texts: set[tuple[str, int]] = msgspec.field(default_factory=set)  # hash of a captured graph, its operations
    keys: dict[str, CacheKey] = msgspec.field(default_factory=dict)  # by that hash


class BackendTally(Tally):
    """The compiler behind Dynamo, as one backend uses it. Nanoseconds, without Dynamo's and AOTAutograd's part."""

    first: DynamoCompile  # of a process: it loads the compiler, and tries what else that needs
    ns: int = 0  # of the graphs after it
    ops: int = 0  # of these


class CallTally(Tally):
    """All that was compiled for calls from one line. Nanoseconds."""

    first: DynamoCompile
    compiles: int = 0
    dur: int = 0
    ops: int = 0
    broken: bool = False  # there was a graph break, by design or not


class PieceTally(Tally):
    """First versions of the graphs compiled for the code on one side of a graph break. Nanoseconds."""

    count: int = 0
    cheapest: int = 0  # of those before the latest
    latest: int = 0  # Dynamo's part, and XLA's so far

    def begin(self, dur: int) -> None:
        """Count a graph that Dynamo captured in ``dur`` ns."""
        self.cheapest = self.least
        self.latest = dur
        self.count += 1

    @property
    def least(self) -> int:
        """The time of the cheapest graph: the fixed cost of a graph, and a few operations."""
        return min(self.cheapest or self.latest, self.latest)

    def merge(self, other: PieceTally) -> None:
        if other.count:
            self.cheapest = self.latest = min(self.least or other.least, other.least)
            self.count += other.count


class RecompileRecord(msgspec.Struct):
    """A function was compiled again. Nanoseconds."""

    event: Recompile
    step: int  # number of the step it happened in; -1 before the first
    apart: bool  # nothing had been compiled for calls from this line
    another: bool  # the first for another object of the class: a block of a model that is compiled block by block
    dur: int = 0  # of its forward and backward graph, XLA's part included
    limit: DynamoLimit | None = None  # the limit that it hit
    done: bool = False  # its forward graph was compiled: the next of the same id comes after a reset


class TorchCompile:
    """The tallies of one recording. Ids are the recording's own."""

    def __init__(self) -> None:
        self.breaks: dict[tuple[int, str], BreakTally] = {}  # (stack, reason)
        self.functions: dict[tuple[int, int], FunctionTally] = {}  # (stack of the definition, name)
        self.calls: dict[int, CallTally] = {}  # by the line's stack
        self.backends: dict[int, list[BackendTally]] = {}  # by Text id; one for each process
        self.behind: dict[int, PieceTally] = {}  # by the stack of the break
        self.before: dict[int, PieceTally] = {}  # the same
        self.recompiles: list[RecompileRecord] = []
        self.limits: list[tuple[DynamoLimit, int]] = []  # with the step
        self.limited = False  # one was hit
        self.compiled_autograd = False  # traces backward graphs, which then are no function's
        self.failed: list[DynamoCompile] = []  # an error stopped them
        self.asked: set[int] = set()  # Stack ids of the lines that call torch.compile
        self.unrolled: list[DynamoCompile] = []  # that one line made many operations of, and their backward
        self.generated: list[GeneratedCode] = []
        self.converting: list[DynamoCompile] = []  # first versions that make numbers wider, or copy between devices
        self.ran = Ran()
        self._latest_spans: deque[tuple[int, int]] = deque(maxlen=RECORDS)  # t and dur of what was compiled
        self._in_steps: dict[tuple[int, int], int] = {}  # (name, which of them) -> ns of compiling
        self._open_breaks: dict[str, list[BreakTally]] = {}  # compile id -> breaks since it began
        self._again: dict[str, RecompileRecord] = {}  # compile id -> the latest with that id
        self._function: FunctionTally | None = None  # the function compiled last
        self._latest: RecompileRecord | None = None  # the version compiled last, if that was a recompilation
        self._parts: dict[str, Part] = {}  # hash of a graph's operations -> whose they were first
        self._settings: Mapping[str, str] = {}  # of inductor, as hashes: what keys are made of
        self._tuned: dict[str, int] = {}  # ns, for the compilation that goes on
        self._pieces: list[PieceTally] = []  # what it counts for, if it was the first version beside a break

    def on(self, event: Autotune | CompileAsked | GeneratedCode | TimedGraph | GraphCalls) -> None:
        if isinstance(event, GraphCalls):
            self.ran.on_calls(event)
        elif isinstance(event, TimedGraph):
            self.ran.on_graph(event)
        elif isinstance(event, Autotune):
            self.on_tuned(event)
        elif isinstance(event, GeneratedCode):
            if len(self.generated) < RECORDS:
                self.generated.append(event)
        elif len(self.asked) < RECORDS:
            self.asked.add(event.stack)

    def on_break(self, event: GraphBreak, step: int) -> None:
        tally = kept(self.breaks, (event.stack, event.reason), RECORDS, lambda: BreakTally(event, step))
        tally.count += 1
        if event.skipped:
            tally.inside.add(event.inside)
        if event.compile:
            if len(self._open_breaks) >= RECORDS:
                self._open_breaks.clear()
            self._open_breaks.setdefault(event.compile, []).append(tally)

    def on_recompile(self, event: Recompile, step: int) -> None:
        function = self.functions.get((event.code, event.func))
        seen = function.callers if function is not None else set()
        another = event.fresh and (function is None or step <= function.step)
        record = RecompileRecord(event, step, event.stack not in seen, another)
        if len(self.recompiles) < RECORDS:
            self.recompiles.append(record)
        if len(self._again) >= RECORDS:
            self._again.clear()
        self._again[event.compile] = record

    @property
    def latest(self) -> int:
        """When what was compiled last began; -1: nothing was."""
        return self._latest_spans[-1][0] if self._latest_spans else -1

    def on_step(self, name: int, number: int, start: int) -> None:
        """A step has ended, the so-manieth of its name."""
        spent = sum(dur for _, dur in takewhile(lambda span: span[0] >= start, reversed(self._latest_spans)))
        if spent:
            if len(self._in_steps) >= RECORDS:
                self._in_steps.clear()
            self._in_steps[name, number] = spent

    def took(self, name: int, steps: StepTally) -> list[Took]:
        """The latest steps of a name, in order."""
        first = steps.count - len(steps.recent) + 1
        compiling = [self._in_steps.get((name, number), 0) for number in range(first, steps.count + 1)]
        both = zip(steps.recent, compiling, strict=True)
        return [Took(number, max(0, dur - spent), spent) for number, (dur, spent) in enumerate(both, first)]

    def on_limit(self, event: DynamoLimit, step: int, steps: Mapping[int, StepTally]) -> None:
        self.limited = True
        function = self.functions.get((event.code, event.func))
        if function is not None and function.limit is None:
            function.limit, function.limited = event, step
            named = (item for item in steps.items() if item[0])  # of others nobody says where they begin
            for name, tally in nlargest(_STEPS, named, key=lambda item: item[1].count):
                function.steps_before[name] = self.took(name, tally)
        record = self._again.get(event.compile)
        if record is not None:
            record.limit = event
        elif len(self.limits) < RECORDS:
            self.limits.append((event, step))

    def on_compile(self, event: DynamoCompile, step: int) -> None:
        self.compiled_autograd = self.compiled_autograd or event.compile.startswith("!")
        record = self._again.get(event.compile)
        if record is not None and not event.backward:
            if record.done:
                record = self._again.pop(event.compile) and None
            else:
                record.done = True
        breaks = self._open_breaks.pop(event.compile, ())
        #: without what its breaks are charged with
        dur = event.dur - (event.restarted if breaks else 0)
        failed = event.fail not in ("", _UNSUPPORTED) and not event.compiled and (record is None or not record.limit)
        if failed and len(self.failed) < RECORDS:
            self.failed.append(event)
            self.recompiles = [one for one in self.recompiles if one is not record]
        elif record is not None:
            record.dur += dur
        self._latest = record
        self._pieces = []
        if event.turns >= HABIT and not failed and len(self.unrolled) < RECORDS:
            self.unrolled.append(event)
        elif event.backward and len(self.unrolled) < RECORDS:
            self.unrolled += self._backward_of_turns(event)
        if event.conversions and record is None and not failed and len(self.converting) < RECORDS:
            self.converting.append(event)
        if event.ops and event.compiled and record is None:
            sides = [(self.before, tally.event.stack) for tally in breaks]
            for table, stack in [*sides, (self.behind, event.resumed)]:
                if stack and len(table) < RECORDS:
                    self._pieces.append(table.setdefault(stack, PieceTally()))
            for piece in self._pieces:
                piece.begin(dur)
        part = event.code, event.func, event.resumed
        for tally in breaks:
            tally.restarted += event.restarted // len(breaks)
            tally.callers.add(event.stack)
            (tally.cut if event.compiled else tally.plain).add(part)
        key = (event.code, event.func)
        function = kept(self.functions, key, RECORDS, lambda: FunctionTally(event.func, step, event.backend))
        self._function = function
        if not event.backward and not event.resumed and event.compile.endswith("/0"):
            function.callers.clear()  # Dynamo begins anew, also after a reset
        function.compiles += 1
        function.backwards += event.backward
        function.dur += event.dur
        self._latest_spans.append((event.t, event.dur))
        self.ran.on_compiled(event.t, event.dur)
        if len(function.spans) < RECORDS:
            function.spans.append((event.t, event.dur))
        for phase, ns in event.phases.items():
            add_bounded(function.phases, phase, ns, KEPT)
        for kernel, ns in self._tuned.items():
            add_bounded(function.tuned, kernel, ns, RECORDS)
        self._tuned = {}
        function.backend = event.backend or function.backend
        function.callers.add(event.stack)
        function.cached += event.dur * event.cached
        if record is None:
            later = not event.compile.endswith("/0") and not event.backward
            function.unknown += dur * (later and not failed)
            if not event.compiled:
                function.plain.add(event.resumed)
        call = kept(self.calls, event.stack, RECORDS, lambda: CallTally(event))
        call.compiles += 1
        call.dur += event.dur
        call.broken = call.broken or any(tally.event.gb != RAISED for tally in breaks)
        made_of = self._key(event.key) if event.key else None
        if event.compiled and not event.backward:
            function.ops += event.ops
            if event.ops and event.phases:
                self._with_backend(event)
            if event.forgotten and event.ops and record is None:
                add_bounded(function.forgotten, event.forgotten, 1, KEPT)
                add_bounded(function.forgotten_ns, event.forgotten, event.dur, KEPT)
            if event.operations and event.ops >= _FEW and record is None and not event.forgotten:
                other = kept(self._parts, event.operations, RECORDS, lambda: part) != part
                function.alike += other
                function.alike_ns += other * event.dur
            function.versions += event.ops > 0
            function.variable += event.ops > 0 and not event.static
            function.again += event.ops > 0 and record is not None
            function.parts_most = max(function.parts_most, event.parts)
            function.bucket_most = max(function.bucket_most, event.bucket)
            if event.graph and len(function.texts) < RECORDS:
                function.texts.add((event.graph, event.ops))
                if made_of is not None:
                    function.keys.setdefault(event.graph, made_of)
            call.ops += event.ops
            if event.ops and len(function.graphs) < RECORDS:
                function.graphs.add(event.compile.rpartition("/")[0])

    def _key(self, key: Mapping[str, str]) -> CacheKey:
        """A graph's key, whose settings are told where they are not as they were."""
        changed = {name: value for name, value in key.items() if name.startswith(SETTING)}
        if changed and len(self._settings) < RECORDS:
            self._settings = {**self._settings, **changed}
        return CacheKey({name: value for name, value in key.items() if name not in changed}, self._settings)

    def _with_backend(self, event: DynamoCompile) -> None:
        tally = self.backends.setdefault(event.backend, [BackendTally(event)])[0]
        if tally.first is not event and not event.cached:
            tally.ns += _behind(event)
            tally.ops += event.ops

    def _backward_of_turns(self, event: DynamoCompile) -> list[DynamoCompile]:
        """A backward graph as what it is of: the loop that its forward graph unrolled, if that did."""
        of = (event.compile, event.code, event.func)
        for one in reversed(self.unrolled):
            if (one.compile, one.code, one.func) == of:
                loop = {"turns": one.turns, "loop": one.loop, "ops": one.ops, "loop_ops": one.loop_ops}
                return [] if one.backward else [replace(event, **loop)]
        return []

    def first_use(self, event: DynamoCompile) -> int:
        """What the compiler behind ``event`` took since it was the first of its backend in a process, in ns.

        That is what it took beyond the usual time for as many operations; all of it where none came after it.
        """
        for one in self.backends.get(event.backend, ()):
            if (one.first.compile, one.first.t) == (event.compile, event.t):
                return max(0, _behind(event) - (one.ns * event.ops // one.ops if one.ops else 0))
        return 0

    def on_tuned(self, event: Autotune) -> None:
        """Of a kernel that was tuned when it first ran, this is time of compiling too."""
        function = self.functions.get((event.code, event.func))
        if not event.apart:
            add_bounded(self._tuned, event.kernel, event.dur, RECORDS)  # the event of its compilation follows
        elif function is not None:
            add_bounded(function.tuned, event.kernel, event.dur, RECORDS)
            function.dur += event.dur
            self._latest_spans.append((event.t, event.dur))
            add_bounded(function.phases, "autotuning", event.dur, KEPT)

    def on_lowered(self, event: Compile) -> None:
        """XLA compiled the graph that Dynamo captured last."""
        self._latest_spans.append((event.t, event.dur))
        self.ran.on_compiled(event.t, event.dur)
        if self._function is not None:
            self._function.dur += event.dur
            add_bounded(self._function.phases, "XLA", event.dur, KEPT)
        if self._latest is not None:
            self._latest.dur += event.dur
        for piece in self._pieces:
            piece.latest += event.dur

    def merge(self, other: TorchCompile, ids: Ids) -> None:
        """Add another recording's, which stays as it is, its ids mapped to ours."""
        for (place, reason), broken in other.breaks.items():
            line = ids.stack(place), reason
            mine = self.breaks.setdefault(line, BreakTally(_mapped(broken.event, ids), broken.step))
            plain, cut = (
                {(ids.stack(code), ids.text(name), ids.stack(resumed)) for code, name, resumed in parts}
                for parts in (broken.plain, broken.cut)
            )
            mine.merge(replace(broken, plain=plain, cut=cut, callers=set(map(ids.stack, broken.callers))))
        for (code, name), function in other.functions.items():
            name = ids.text(name)
            key = ids.stack(code), name
            ours = self.functions.setdefault(key, FunctionTally(name, function.step, 0))
            ours.backend = ours.backend or ids.text(function.backend)
            if function.limit is not None and ours.limit is None:
                ours.limit, ours.limited = _mapped(function.limit, ids), function.limited
            callers, given_up = (set(map(ids.stack, places)) for places in (function.callers, function.plain))
            forgotten, ns = (
                {ids.stack(place): number for place, number in counted.items()}
                for counted in (function.forgotten, function.forgotten_ns)
            )
            function = replace(function, forgotten=forgotten, forgotten_ns=ns, steps_before={})
            ours.steps_before = {}  # steps of several recordings are in no order
            ours.merge(replace(function, callers=callers, plain=given_up, limit=None, limited=0))
        for backend, processes in other.backends.items():
            of_it = (replace(one, first=_mapped(one.first, ids)) for one in processes)
            self.backends.setdefault(ids.text(backend), []).extend(of_it)
        for place, call in other.calls.items():
            self.calls.setdefault(ids.stack(place), CallTally(_mapped(call.first, ids))).merge(call)
        for pieces, theirs in ((self.behind, other.behind), (self.before, other.before)):
            for place, piece in theirs.items():
                pieces.setdefault(ids.stack(place), PieceTally()).merge(piece)
        for record in other.recompiles:
            limit = record.limit and _mapped(record.limit, ids)
            self.recompiles.append(replace(record, event=_mapped(record.event, ids), limit=limit))
        self.limits += [(_mapped(event, ids), step) for event, step in other.limits]
        self.failed += [_mapped(event, ids) for event in other.failed]
        self.unrolled += [_mapped(event, ids) for event in other.unrolled]
        self.converting += [_mapped(event, ids) for event in other.converting]
        self.generated += [_mapped(event, ids) for event in other.generated]
        self.asked.update(map(ids.stack, other.asked))
        self.ran.merge(other.ran, ids)
        self.compiled_autograd = self.compiled_autograd or other.compiled_autograd


def _behind(event: DynamoCompile) -> int:
    return sum(event.phases.get(phase, 0) for phase in _COMPILERS)


def _mapped(event: Any, ids: Ids) -> Any:
    """An event whose ids are those of the run it was merged into."""
    mapped = ids.mapped(event, ("stack", "code", "resumed", "at", "loop", "forgotten"), ("func", "backend", "op"))
    if isinstance(event, Recompile):
        return replace(mapped, guards=[ids.mapped(guard, ("stack", "asked")) for guard in event.guards])
    if isinstance(event, DynamoCompile):
        return replace(mapped, conversions=[ids.mapped(one, ("stack",)) for one in event.conversions])
    if isinstance(event, DynamoLimit) and event.guard is not None:
        return replace(mapped, guard=ids.mapped(event.guard, ("stack", "asked")))
    return mapped
