"""The totals of a run in detail, for those who look into it: graphs and where they part, breaks, costs by line.

As frozen structs, in bounded numbers. Lengths are seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from types import MappingProxyType

import msgspec

from xlaprof.analysis.evidence.compilation import program_stat
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.fold.torch_compile import BreakTally, CacheKey, Part, RecompileRecord
from xlaprof.analysis.model import Place, ProgramStat
from xlaprof.analysis.places import users
from xlaprof.analysis.sums import grouped
from xlaprof.analysis.timeline.host import CAUSES
from xlaprof.events import Change, Recompile
from xlaprof.text.quantities import plural, size_text, times

GRAPHS = 2_000
LINES = 500
_DEEPEST = 40  # breaks behind one another


class Graph(ProgramStat, frozen=True):
    """A compiled program, and how it parts from the closest one before it."""

    step: int  # in which it was compiled; -1: before the first
    at_s: float  # since the begin of the recording
    hash: str = ""  # of the canonical graph: the same program of another rank has the same
    against: int = 0  # the program it was compared with; 0: none
    common: int = 0  # operations recorded in common before they part
    what: str = ""  # "shape" | "scalar" | ...: in what they differ
    subject: str = ""
    old: str = ""
    new: str = ""
    added: int = 0  # operations that came, and
    removed: int = 0  # that went
    places: tuple[tuple[str, Place], ...] = ()  # of the difference: what happened there, and the line


class Again(msgspec.Struct, frozen=True):
    """torch.compile, or JAX, compiled a function again."""

    name: str
    step: int  # in which it was compiled; -1: no step is recorded
    compile_s: float
    place: Place  # the line that called
    changes: tuple[tuple[str, str, str, str], ...]  # kind, subject, old, new

    @property
    def told(self) -> str:
        """What changed first; empty where it is not known."""
        return changed(*self.changes[0]) if self.changes else ""


def changed(what: str, subject: str, old: str, new: str) -> str:
    """ "shape of x: f32[8] -> f32[5]" """
    return f"{what} of {subject}: {old} -> {new}" if subject else f"{what}: {old} -> {new}"


class Break(msgspec.Struct, frozen=True):
    """What cuts a function of torch.compile at a line, and what cuts the code that follows."""

    place: Place
    reason: str
    explanation: str
    hint: str
    number: str  # "GB0059"
    by_design: bool
    count: int
    vain_s: float  # tracing that it made useless
    plain: bool  # what follows runs as plain Python
    behind: tuple[Break, ...] = ()


class Function(msgspec.Struct, frozen=True):
    """A function of torch.compile, with what cuts it."""

    name: str
    place: Place
    backend: str
    graphs: int
    compile_s: float
    breaks: tuple[Break, ...] = ()
    again: tuple[Again, ...] = ()
    parts: int = 0  # into which a graph is split for DistributedDataParallel; 0: it is whole
    texts: tuple[tuple[str, int], ...] = ()  # hash and operations of each graph it is, the same on all ranks; sorted
    keys: tuple[tuple[str, CacheKey], ...] = ()  # hash of such a graph, and what its key in inductor's cache is made of
    spans: tuple[tuple[float, float], ...] = ()  # when it was compiled, seconds of the unix clock


class Stood(msgspec.Struct, frozen=True):
    """The main thread was seen at one line. Seconds of the unix clock."""

    start_s: float
    end_s: float
    place: Place


class Transfer(msgspec.Struct, frozen=True):
    """Values read from the device by one line, or copied to it."""

    place: Place
    operation: str  # of a read
    count: int
    total_s: float
    wait_s: float  # of total_s: for the device to compute them; -1: not known
    bytes: int  # -1: not known
    steps: int  # with at least one; -1: not known
    up: bool = False  # to the device


class LineCost(msgspec.Struct, frozen=True):
    """What one line of the program cost; ``items``: part, seconds, in words; the largest first."""

    place: Place
    seconds: float
    items: tuple[tuple[str, float, str], ...]


class Details(msgspec.Struct, frozen=True):
    """All of it."""

    graphs: tuple[Graph, ...] = ()  # in order of compilation
    functions: tuple[Function, ...] = ()  # of torch.compile, the one that took longest to compile first
    stood: tuple[Stood, ...] = ()  # where the main thread was for long, in order of time
    compiling: Stood | None = None  # a compilation whose end is not recorded: from its begin to the last event
    jax: tuple[Again, ...] = ()  # programs of JAX that were made again
    transfers: tuple[Transfer, ...] = ()  # the longest first
    lines: tuple[LineCost, ...] = ()  # the dearest first


#: of a line, by its stack: uploads, ns, bytes
Uploads = Mapping[int, Sequence[int]]


def details(run: Fold, uploads: Uploads = MappingProxyType({})) -> Details:
    """The details of a run, settled or not."""
    return Details(
        graphs=tuple(_graphs(run)),
        functions=tuple(_functions(run)),
        stood=tuple(_stood(run)),
        compiling=_compiling(run),
        jax=tuple(_again(run, record, record.event.dur) for record in run.jit.records[:GRAPHS]),
        transfers=tuple(nlargest(LINES, (*_reads(run), *_sent(run, uploads)), key=lambda one: one.total_s)),
        lines=tuple(_lines(run, uploads)),
    )


def _graphs(run: Fold) -> Iterator[Graph]:
    begin = run.begin or 0
    for record in run.compiles[:GRAPHS]:
        stat = msgspec.structs.asdict(program_stat(run, record))
        graph = Graph(**stat, step=record.step, at_s=(record.t - begin) / 1e9, hash=record.graph)
        yield _parted(graph, record.change, run) if record.change is not None else graph


def _parted(graph: Graph, change: Change, run: Fold) -> Graph:
    named = (
        ("recorded at", change.stack),
        ("the earlier graph has", change.expected),
        ("made at", change.made),
        ("decided at", change.condition),
    )
    return msgspec.structs.replace(
        graph,
        against=change.against,
        common=change.position,
        what=change.what,
        subject=change.name or change.subject,
        old=change.old,
        new=change.new,
        added=change.added,
        removed=change.removed,
        places=tuple((what, run.names.place(stack)) for what, stack in named if stack),
    )


def _functions(run: Fold) -> Iterator[Function]:
    compiled = run.torch_compile
    breaks = [(key[0], tally) for key, tally in compiled.breaks.items()]
    again = grouped(compiled.recompiles, lambda record: (record.event.code, record.event.func))
    for (code, name), tally in sorted(compiled.functions.items(), key=lambda item: -item[1].dur)[:LINES]:
        yield Function(
            name=run.names.text(name),
            place=run.names.place(code),
            backend=run.names.text(tally.backend),
            graphs=tally.versions,
            compile_s=tally.dur / 1e9,
            breaks=tuple(_behind(run, breaks, (code, name, 0), frozenset())),
            again=tuple(_again(run, record, record.dur) for record in again.get((code, name), ())),
            parts=tally.parts_most,
            texts=tuple(sorted(tally.texts)),
            keys=tuple(tally.keys.items()),
            spans=tuple((unix_s(run, start), unix_s(run, start + dur)) for start, dur in tally.spans),
        )


def unix_s(run: Fold, t: int) -> float:
    """A moment of the recording on the clock that hosts share."""
    return (t + run.header.unix_ns - run.header.mono_ns) / 1e9 if run.header is not None else t / 1e9


def _compiling(run: Fold) -> Stood | None:
    if (begun := run.lasting) is None:
        return None
    return Stood(unix_s(run, begun.t), unix_s(run, max(begun.t, run.last)), begun.place)


def _stood(run: Fold) -> Iterator[Stood]:
    for dur, start, stack, _ in run.standing.all():
        yield Stood(unix_s(run, start), unix_s(run, start + dur), users(run.names.place(stack)))


def _again(run: Fold, record: RecompileRecord | JitRecord, ns: int) -> Again:
    event = record.event
    if isinstance(event, Recompile):
        changes = tuple((one.kind, one.subject, one.old, one.new) for one in event.guards)
    else:
        changes = tuple((one.kind, one.name, one.old, one.new) for one in event.changes)
    step = record.step if run.steps_ended else -1
    return Again(run.names.text(event.func), step, ns / 1e9, run.names.place(event.stack), changes)


def _behind(run: Fold, breaks: list[tuple[int, BreakTally]], part: Part, passed: frozenset[int]) -> Iterator[Break]:
    """The breaks of ``part``: the code that goes on behind the break at stack ``part[2]``; 0: of its beginning."""
    for stack, tally in breaks:
        if part not in tally.cut and part not in tally.plain:
            continue
        event = tally.event
        deeper = stack not in passed and len(passed) < _DEEPEST
        yield Break(
            place=run.names.place(stack),
            reason=event.reason,
            explanation=event.explanation,
            hint=event.hint,
            number=event.gb,
            by_design=event.by_design,
            count=tally.count,
            vain_s=tally.restarted / 1e9,
            plain=part in tally.plain and part not in tally.cut,
            behind=tuple(_behind(run, breaks, (*part[:2], stack), passed | {stack})) if deeper else (),
        )


def _reads(run: Fold) -> Iterator[Transfer]:
    for (stack, op), read in run.reads.items():
        yield Transfer(
            place=run.names.place(stack),
            operation=run.names.text(op),
            count=read.count,
            total_s=read.dur / 1e9,
            wait_s=read.wait / 1e9,
            bytes=read.bytes,
            steps=read.steps,
        )


def _sent(run: Fold, uploads: Uploads) -> Iterator[Transfer]:
    for stack, (count, ns, size) in uploads.items():
        yield Transfer(run.names.place(stack), "", count, ns / 1e9, wait_s=-1, bytes=size, steps=-1, up=True)


def _lines(run: Fold, uploads: Uploads) -> Iterator[LineCost]:
    sent = (
        (stack, "upload", ns, f"uploaded {times(count)}, {size_text(size)}")
        for stack, (count, ns, size) in uploads.items()
    )
    items = ((run.names.place(stack), part, ns, text) for stack, part, ns, text in (*_costs(run), *sent))
    return by_line(items, LINES)


def by_line(costs: Iterable[tuple[Place, str, int, str]], most: int) -> Iterator[LineCost]:
    """The dearest lines, ``most`` of them; ``costs``: line, part, ns, in words. What has no line is left out."""
    known = (cost for cost in costs if cost[0].file and cost[0].line)
    found = []
    for group in grouped(known, lambda cost: cost[0].at).values():
        items = sorted(((part, ns / 1e9, text) for _, part, ns, text in group), key=lambda item: -item[1])
        found.append(LineCost(group[0][0], sum(ns / 1e9 for _, _, ns, _ in group), tuple(items)))
    yield from nlargest(most, found, key=lambda line: line.seconds)


def _costs(run: Fold) -> Iterator[tuple[int, str, int, str]]:
    """Stack, part, ns and in words, of all that is counted by line; what was compiled meanwhile counts once."""
    compiled: dict[int, list[int]] = defaultdict(list)
    for record in run.compiles:
        compiled[record.stack].append(record.dur)
    for stack, durs in list(compiled.items()):
        yield stack, "compile", sum(durs), f"compiled {times(len(durs))}"
    for stack, call in run.torch_compile.calls.items():
        yield stack, "compile", call.dur, f"torch.compile compiled {times(call.compiles)}"
    for (stack, _), jitted in run.jit.functions.items():
        yield stack, "compile", jitted.dur, f"JAX made {plural(jitted.programs, 'program')}"
    for (stack, op), read in run.reads.items():
        yield stack, "transfer wait", read.dur - read.compiled, f"{run.names.text(op) or 'read'} {times(read.count)}"
    for (stack, op), fallback in run.fallbacks.items():
        what = f"{run.names.text(op)} on the CPU {times(fallback.count)}"
        yield stack, "fallback", fallback.dur - fallback.compiled, what
    for (stack, cause), pause in run.pauses.items():
        yield stack, CAUSES[cause], pause.total, f"{CAUSES[cause]} {times(pause.count)}"
    for stack, site in run.sites.items():
        handing = site.dispatch.total - sum(compiled[stack])  # a barrier takes as long as what it compiles, and more
        if site.dispatch.count and handing > 0:
            yield stack, "dispatch", handing, f"barrier, reached {times(site.visits)}"
    for (stack, reason), broken in run.torch_compile.breaks.items():
        yield stack, "graph break", broken.restarted, f"breaks the graph: {reason}"
