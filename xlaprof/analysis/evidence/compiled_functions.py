"""What ``torch.compile`` did, by function, and what its loop calls else; and why each second of compiling was spent.

Compiling is a defect only where it was done again, or in vain: that part is charged to findings. The first version of
a graph, or one for another phase of the program, is necessary. Whatever the recording does not explain is said to be
unexplained.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice, takewhile

from msgspec.structs import replace

from xlaprof.analysis.evidence.activities import innermost
from xlaprof.analysis.evidence.breaks import broken, function_name
from xlaprof.analysis.evidence.collecting import asked_for
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures.case import sizes_of_dim
from xlaprof.analysis.evidence.guard_failures.sorting import Blamed, cost_s, sort_out
from xlaprof.analysis.evidence.guard_failures.told import steps_around_limit
from xlaprof.analysis.fold.torch_compile import RAISED, FunctionTally
from xlaprof.analysis.model import (
    Charge,
    CompiledFunctions,
    ConversionStat,
    CudaGraphStat,
    Finding,
    FunctionStat,
    Place,
)
from xlaprof.analysis.model.compiled import GraphCodeStat, GraphTimeStat, RunTimeStat
from xlaprof.analysis.places import cited, short
from xlaprof.analysis.principles import (
    DEAR,
    FELT,
    HABIT,
    LARGE,
    LISTED,
    LONG_S,
    LOOKED_NS,
    MANY,
    MOST,
    NAMED,
    SHOWN,
    WORTH_SAYING,
)
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.timeline import host
from xlaprof.analysis.uses import computed_of_all
from xlaprof.events import Guard, Look
from xlaprof.text.quantities import duration, percent, plural, size_text, times
from xlaprof.text.strings import enumerated

UNACCOUNTED = "unaccounted"
_SAVES = "checkpoint"
#: in the names of PyTorch's backends that run a graph so: eager, aot_eager and others
OPERATION_BY_OPERATION = "eager"
_LONG_NS = 500_000_000  # mean length of looks at one thing that goes on, which are cut after a second
#: brings an array of the device to the host by Python's buffers, which no event tells of: it may wait for that
_WAITS = re.compile(r"\b(np|onp|numpy)\.(asarray|array)\(")
#: a line that trains, however it is written: the backward pass, and what an optimizer does
_TRAINS = re.compile(r"\b(backward|step|zero_grad|clip_grad\w*|autograd\.grad)\(")
_RESUMES = "torch_dynamo_resume_in_"  # name of a function that Dynamo makes of the part behind a graph break
_Key = tuple[int, int]  # of a function: stack of its definition, name


def compiled_functions(
    facts: Facts,
    findings: tuple[Finding, ...],
    code: Mapping[_Key, tuple[GraphCodeStat, ...]],
    conversions: Mapping[_Key, tuple[ConversionStat, ...]],
    runs: tuple[Mapping[_Key, tuple[str, ...]], ...],
    by_graphs: Mapping[_Key, tuple[str, ...]],
    all_graphs: CudaGraphStat,
    times: Mapping[_Key, tuple[GraphTimeStat, ...]],
    run_time: RunTimeStat,
) -> CompiledFunctions:
    """The section on torch.compile of a settled run; ``findings``: all of the run.

    What is said of each function: ``code``, inductor's; ``conversions``; ``times`` of its graphs; ``runs``, these three
    in words; ``by_graphs``, of CUDA graphs. ``all_graphs`` and ``run_time`` are of all functions.
    """
    functions = facts.run.torch_compile.functions
    breaks = Counter(key for here in broken(facts).values() for key in here.functions)
    longest = nlargest(LISTED, functions.items(), key=lambda item: item[1].dur)
    total = sum(one.dur for one in functions.values())
    return CompiledFunctions(
        count=len(functions),
        graphs=sum(one.versions for one in functions.values()),
        total_s=total / 1e9,
        functions=tuple(
            replace(
                _stat(facts, key, tally, breaks[key]),
                code=code.get(key, ()),
                conversions=conversions.get(key, ()),
                runs=tuple(text for said in runs for text in said.get(key, ())),
                cuda_graphs=by_graphs.get(key, ()),
                graph_times=times.get(key, ()),
            )
            for key, tally in longest
        ),
        charges=tuple(_charges(facts, findings, total)),
        cuda_graphs=all_graphs,
        run_time=run_time,
    )


def _stat(facts: Facts, key: _Key, tally: FunctionTally, breaks: int) -> FunctionStat:
    phases = Counter(tally.phases)
    if phases:  # all of the function's compile time is told
        phases[UNACCOUNTED] += max(0, tally.dur - phases.total())
    return FunctionStat(
        name=facts.text(tally.name),
        place=facts.place(key[0]),
        backend=facts.text(tally.backend),
        graphs=tally.versions,
        again=tally.again,
        breaks=breaks,
        compile_s=tally.dur / 1e9,
        plain=tuple(_plain(facts, tally)),
        phases=tuple((name, ns / 1e9) for name, ns in phases.most_common() if ns),
        tuned=tuple((name, ns / 1e9) for name, ns in nlargest(SHOWN, tally.tuned.items(), key=lambda item: item[1])),
        parts=tally.parts_most,
        by_design=tuple(_by_design(facts, key, tally)),
        limit_steps_s=around[:2] if (around := steps_around_limit(facts, key)) is not None else (),
    )


def _by_design(facts: Facts, key: _Key, tally: FunctionTally) -> Iterator[str]:
    """Where the graphs of a function end as they are meant to."""
    if tally.parts_most:
        size = f" of {size_text(tally.bucket_most)}" if tally.bucket_most else ""
        yield (
            f"its graph runs as {tally.parts_most:,} parts, one for each bucket{size} of DistributedDataParallel: the "
            "gradients of one are sent while those of the next are computed"
        )
    breaks = facts.run.torch_compile.breaks.values()
    meant = (one for one in breaks if one.event.by_design and one.event.gb != RAISED)
    here = (one.event.reason for one in meant if any(part[:2] == key for part in one.cut | one.plain))
    yield from islice(dict.fromkeys(here), SHOWN)


def _plain(facts: Facts, tally: FunctionTally) -> Iterator[str]:
    if 0 in tally.plain:
        yield "all of it"
    else:
        for line in sorted(facts.place(resumed).line for resumed in tally.plain):
            yield f"what follows line {line}"
    if tally.limit is not None:
        yield f"since step {tally.limited} what fits no version" if tally.limited > 0 else "what fits no version"


def _charges(facts: Facts, findings: tuple[Finding, ...], total: int) -> Iterator[Charge]:
    """The parts of ``total``, in ns; without those that are 0."""
    functions = facts.run.torch_compile.functions.values()
    told = {one.event.compile for here in broken(facts).values() for one in here.tallies if one.event.skipped}
    failed = [one for one in facts.run.torch_compile.failed if one.compile not in told]  # which broke nothing
    again, _, necessary, chosen = sort_out(facts)
    charged = {
        "break": sum(one.cost_s for one in findings if one.kind == "graph_break"),
        "loop": sum(one.cost_s for one in findings if one.kind == "unrolled_loop" and not one.operation),
        "recompile": sum(record.dur for group in again for record, _, _ in group) / 1e9,
        "necessary": sum(record.dur for record in necessary) / 1e9,
        "chosen": sum(map(cost_s, chosen)),
        "failed": sum(one.dur for one in failed) / 1e9,
        "unexplained": sum(one.unknown for one in functions) / 1e9,
    }
    charged = {"first": max(0.0, total / 1e9 - sum(charged.values())), **charged}
    error = facts.run.end.error if facts.run.end is not None else ""
    failures = [
        f"{function_name(facts, one.code, one.func)}, called at {short(facts.place(one.stack))} "
        f"({one.fail}{', which ended the program' * (one.fail == error)})"
        for one in failed[:NAMED]
    ]
    why = {
        "first": _first(facts, tuple(functions), total),
        "break": "for what graph breaks made useless or cut off: see the findings.",
        "loop": "for the turns of loops, each compiled for itself: see the findings.",
        "recompile": "for compiling again: see the findings.",
        "necessary": f"for {plural(len(necessary), 'version')} for another use of the function (evaluation, an "
        "optimizer's second step), another object of the class or what two threads compiled at once: normal.",
        "chosen": f"for {enumerated([*_chosen(facts, chosen)], NAMED)}: normal, as "
        "dynamic=False asks for a graph of each size.",
        "failed": f"for {plural(len(failed), 'compilation')} that failed: {'; '.join(failures)}.",
        "unexplained": "is unexplained: compiled again, but the recording does not say why (it began too late).",
    }
    yield from (Charge(what, seconds, why[what]) for what, seconds in charged.items() if seconds > 0)


def _chosen(facts: Facts, groups: list[list[Blamed]]) -> Iterator[str]:
    """ "the 3 sizes 12, 24 and 40 of ids (dimension 1), for which forward was compiled again twice"."""
    inputs: dict[tuple[str, str, int], list[Guard]] = {}
    for record, guard, _ in chain.from_iterable(groups):
        name = function_name(facts, record.event.code, record.event.func) or "the function"
        inputs.setdefault((name, guard.subject or "an input", max(guard.dim, 0)), []).append(guard)
    for (name, subject, dim), guards in inputs.items():
        taken = sorted({int(size) for one in guards for size in sizes_of_dim(one) if size.isdigit()})
        sizes = f"the {len(taken)} sizes {enumerated(list(map(str, taken)), SHOWN)} of {subject} (dimension {dim})"
        yield f"{sizes}, for which {name} was compiled again {times(len(guards))}"


def _first(facts: Facts, functions: tuple[FunctionTally, ...], total: int) -> str:
    """Why the first compilations are no finding, and what makes them shorter all the same."""
    graphs = sum(one.versions - one.again for one in functions)
    cached = sum(one.cached for one in functions) / 1e9
    known = facts.run.torch_compile
    ran, on_host = known.ran.all.ran, facts.run.device is None or facts.run.device.platform == "cpu"
    why = ": normal."
    # what is compiled seldom runs ten times as fast as what is not
    if on_host and 0 < MANY * ran < total and total >= max(LARGE * facts.wall_s, LONG_S) * 1e9:
        why = (
            f", which a run as short as this does not pay back: all calls of the graphs took {duration(ran / 1e9)}. "
            "Where no run is much longer, leave it uncompiled."
        )
    text = f"for the first compilation of {plural(graphs, 'graph')}{why}"
    for backend, processes in known.backends.items():
        begun = sum(known.first_use(one.first) for one in processes if one.ops)
        if begun >= LONG_S * 1e9:
            text += f" {duration(begun / 1e9)} went into the first use of {facts.text(backend)} in a process."
    text += "".join(_forgotten(facts, functions))
    if alike := sum(one.alike for one in functions):
        took, have = sum(one.alike_ns for one in functions) / 1e9, "has" if alike == 1 else "have"
        text += (
            f" {plural(alike, 'graph')} of these ({duration(took)}) {have} the operations of "
            "one before, of another function or on another side of a graph break: a function of their own, compiled "
            "by itself, needs one graph for each size, or one for all."
        )
    if cached:
        of_all = f"Of the {duration(total / 1e9)} in all {duration(cached)}"
        return f"{text} {of_all} went into graphs that inductor had in its cache already."
    if any(facts.text(one.backend) == "inductor" for one in functions):
        text += (
            " A second run on this machine takes most of it from inductor's cache, on another one after "
            "torch.compiler.save_cache_artifacts()."
        )
    return text


def _forgotten(facts: Facts, functions: tuple[FunctionTally, ...]) -> Iterator[str]:
    """Of first compilations, those that come again since the program had PyTorch forget the function's versions."""
    for stack in dict.fromkeys(stack for one in functions for stack in one.forgotten):
        count = sum(one.forgotten.get(stack, 0) for one in functions)
        took = sum(one.forgotten_ns.get(stack, 0) for one in functions) / 1e9
        yield (
            f" {plural(count, 'graph')} of these ({duration(took)}) came after torch._dynamo.reset() at "
            f"{short(facts.place(stack))}, for the same functions with other sizes or constants: a reset makes first "
            "compilations of what would be told as recompilations, with what changed."
        )


# -- what the loop calls beside it


def calls_beside(facts: Facts) -> Iterator[Finding]:
    """Work of the host in turns of the loop that calls compiled code, where it takes much of their time: a finding for
    each line that calls it, or loop that does it.

    Without a device, and where JAX's programs are handed over in advance, only looks at the main thread tell. A line
    that calls compiled code may call other things too, as those that make its arguments. What is compiled, a backward
    pass and an optimizer's step are the program's own work; so is what is called once, and, but where it takes a large
    part of their time, what works on whole arrays and may be different in each turn. Checkpoints are a finding also
    where a library's loop writes them at a line that it runs again and again.
    """
    names, running, spine = facts.names, facts.running_s * 1e9, _Spine(facts)
    jit = facts.run.jit
    compiles = (*jit.compiled_at, *(stack for stack, _ in jit.functions))  # a function is traced there
    ran = {facts.place(stack).at for stack in (*facts.run.executions_at, *compiles)}
    apart = {place.at for place in asked_for(facts)} | runs_at(facts)  # a finding of its own; no call beside it
    free = running - sum(device.busy for device in facts.run.devices())  # what a faster host can gain
    calls: defaultdict[Place, Counter[tuple[int, str]]] = defaultdict(Counter)
    once = set[Place]()  # lines that no loop repeats
    for (stack, state), ns in (facts.run.looks if jit.functions else facts.run.looks_before).items():
        frames = names.frames(stack)
        depth = next((i for i, one in enumerate(frames) if (one.file, one.func) in spine.functions), None)
        if depth is None or state == "import" or any(one.at in ran for one in frames):
            continue
        if frames[0].at in apart or (jit.functions and _WAITS.search(frames[0].code)):
            continue
        line, turns = spine.work(stack, frames, depth)
        if state == _SAVES or turns:
            line = replace(line, library=())
            calls[line][stack, state] += ns
            once |= set() if turns else {line}
    for line, looks in calls.items():
        took, count = min(free, looks.total()), sum(facts.run.look_counts[key] for key in looks)
        if line in once and (count < HABIT or took > _LONG_NS * count):
            continue
        better = _saves(looks) or bool(_computed_of_all(facts, line, looks))
        saved = _saved_by_compiling(facts, took) if _runs_one_by_one(looks) and not better else took
        if saved < FELT * running:
            continue
        better = better or _runs_one_by_one(looks) or _is_shown(line) or _goes_over(facts, line, looks)
        least = (DEAR if better and not jit.functions else LARGE) * running
        if took >= max(LOOKED_NS, least, WORTH_SAYING * facts.wall_s * 1e9):
            yield _finding(facts, line, looks, took, saved, running)


def _runs_one_by_one(looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it is PyTorch's operations: they could be compiled, too."""
    return sum(ns for (_, state), ns in looks.items() if state == "torch") >= MOST * looks.total()


def _saves(looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it is a checkpoint."""
    return sum(ns for (_, state), ns in looks.items() if state == _SAVES) >= MOST * looks.total()


def _is_shown(line: Place) -> bool:
    """Whether it is a call whose value nobody takes: a log, a picture."""
    return any(isinstance(one.value, ast.Call) for one in nodes(line.acting.code, ast.Expr))


def _within(facts: Facts, line: Place, looks: Iterable[tuple[int, str]]) -> Iterator[list[Place]]:
    """The lines of what the line calls, of each look."""
    for stack, _ in looks:
        yield list(takewhile(lambda one: one.at != line.at, facts.names.frames(stack)))


def _computed_of_all(facts: Facts, line: Place, looks: Iterable[tuple[int, str]]) -> str:
    """What computes from all that earlier turns kept, at the line or in what it calls; "": nothing is seen to."""
    codes = chain([line.code], (one.code for lines in _within(facts, line, looks) for one in lines))
    return next(filter(None, map(computed_of_all, codes)), "")


def _goes_over(facts: Facts, line: Place, looks: Iterable[tuple[int, str]]) -> bool:
    """Whether it is a loop, or what the line calls has one: over elements, as a rule."""
    inside = list(_within(facts, line, looks))
    called = all(len(lines) < len(facts.names.frames(stack)) for lines, (stack, _) in zip(inside, looks, strict=True))
    return not called or any(one.loop or nodes(one.code, ast.comprehension) for one in chain(*inside))


def _saved_by_compiling(facts: Facts, took: float) -> float:
    """Ns of ``took`` that are saved by compiling what took them, if half of it remains, and if to compile it takes as
    long as what the run has compiled did in the mean. A backend that makes no code of its own saves nothing."""
    functions = facts.run.torch_compile.functions.values()
    if functions and not any(
        one.versions and OPERATION_BY_OPERATION not in facts.text(one.backend) for one in functions
    ):
        return 0.0
    return took * MOST - sum(one.dur for one in functions) / max(1, sum(one.compiles for one in functions))


class _Spine:
    """The lines that call what is compiled, and those that call them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        known = facts.run.torch_compile
        stacks = {*known.calls, *(one.event.stack for one in known.recompiles), *facts.run.jit.callers}
        lines = {one for stack in stacks for one in facts.names.frames(stack)}
        self.functions = {(one.file, one.func) for one in lines}
        self._lines = {one.at for one in lines}
        self._loops: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # around the lines; 0: none
        for one in lines:
            self._loops[one.file, one.func].add(one.loop)
        self._last: Counter[tuple[str, str, int]] = Counter()  # known line of a loop
        for one in chain(lines, *(facts.names.frames(stack) for stack, _ in facts.run.looks_before)):
            key = one.file, one.func, one.loop
            self._last[key] = max(self._last[key], one.line)
        compiled = {(facts.place(code).file, facts.text(name)) for code, name in known.functions}
        draws = ((facts.place(stack), one) for (stack, cause), one in facts.run.pauses.items() if cause == host.DATA)
        #: lines whose call goes through batches in a loop of a library's, which repeats what it calls of the program's
        self._driving = {place.at for place, one in draws if not place.loop and one.count >= MANY}
        # an older Python knows only the last part of a frame's name
        self._compiled = compiled | {(file, name.rpartition(".")[2]) for file, name in compiled}

    def work(self, stack: int, frames: Sequence[Place], depth: int) -> tuple[Place, bool]:
        """The line, of those in the functions of the spine, or the loop to which a look belongs, and whether it is of
        work in turns of a loop beside what is compiled."""
        line, jitted = frames[depth], bool(self._facts.run.jit.functions)
        turns = any(one.loop for one in frames[depth:]) or any(one.at in self._driving for one in frames[depth + 1 :])
        if depth:
            return line, turns and (line.at not in self._lines or not (jitted or self._in_compiled(frames[:depth])))
        if jitted or line.at in self._lines or self._in_compiled(frames) or _TRAINS.search(line.code):
            return line, False  # of JAX's programs the operations outside of them are told apart
        around = self._loops[line.file, line.func]
        if line.loop in around:
            return line, turns
        inner = any(
            loop < line.loop and (not loop or self._last[line.file, line.func, loop] > line.loop) for loop in around
        )
        again = any(around) or any(one.loop for one in frames[1:])
        return (self._facts.names.loop(stack), again) if inner else (line, False)

    def _in_compiled(self, frames: Iterable[Place]) -> bool:
        """Whether one of the frames is a compiled function's, or of what resumes it behind a graph break."""
        return any((one.file, one.func) in self._compiled or _RESUMES in one.func for one in frames)


def runs_at(facts: Facts) -> frozenset[tuple[str, int]]:
    """The lines at which looks find what ``torch.compile`` made of a function: that of its definition."""
    return frozenset(facts.place(code).at for code, _ in facts.run.torch_compile.functions)


def run_uncompiled(facts: Facts) -> frozenset[tuple[int, str]]:
    """Stack and state of the looks that found what ``torch.compile`` was to run, where nothing was ever compiled: below
    a module's ``forward``; where no look is, at PyTorch's operations, but for those of a line that trains."""
    below, operations = set[tuple[int, str]](), set[tuple[int, str]]()
    for stack, state in facts.run.looks_before:
        frames = facts.names.frames(stack)
        if state != "import" and any(one.func.rpartition(".")[2] == "forward" for one in frames):
            below.add((stack, state))
        elif state == "torch" and not any(_TRAINS.search(one.code) for one in frames[:1]):
            operations.add((stack, state))
    return frozenset(below or operations)


def looked_up(finding: Finding) -> frozenset[tuple[int | str, ...]]:
    """Stack and state of the looks that a finding here counts; empty for any other."""
    counted = finding.counted
    return counted.keys if isinstance(counted, Matching) and counted.event is Look else frozenset()


def _finding(
    facts: Facts, line: Place, looks: Counter[tuple[int, str]], took: float, saved: float, running: float
) -> Finding:
    stacks = Counter[int]()
    for (stack, _), ns in looks.items():
        stacks[stack] += ns
    is_call = any(one.at == line.at for stack in stacks for one in facts.names.frames(stack))
    place = innermost(facts.names, stacks, line) if is_call else line
    if place.at == line.at:  # itself, a loop, or a library that it calls
        place = facts.place(max(stacks, key=stacks.__getitem__))
    most = f", most of it at {cited(place)}" if place.at != line.at else ""
    saves = _saves(looks)
    if saves:
        what = "again and again while a checkpoint is saved at"
    elif all(facts.place(stack).at == line.at for stack in stacks):
        what = "in each turn for"
    else:
        what = "in each turn for " + ("what is called at" if is_call else "the loop of")
    if saves:
        advice = (
            "Save less often: keep a copy of what is the best so far in memory, and write it at the end of an epoch; "
            "or write it in a background thread. Where a library saves, an option of its says how often "
            "(every_n_epochs of Lightning's ModelCheckpoint, save_strategy of transformers' TrainingArguments)."
        )
    elif kept := _computed_of_all(facts, line, looks):
        advice = (
            f"{kept} computes from all that was kept in the turns before, and takes longer in each, until that is "
            "emptied: keep what a turn has (a metric's update()), and compute once after the loop, or at the end of an "
            "epoch. What each turn shows, compute of that turn alone, or of sums that go on."
        )
    elif _runs_one_by_one(looks):
        part = "it" if place.at == line.at else "what is called there"
        if place.at != line.at and place.loop:  # which would be unrolled
            part = "one turn of the loop there, as a function of its own"
        advice = (
            f"Compile {part}, too (torch.compile): PyTorch's operations run there one by one. "
            "What is the same in each turn, do once, before the loop."
        )
    else:
        seldom = "Do it in each tenth turn, or more seldom, where it only shows or keeps something. Else d"
        instead = (
            "; work on whole arrays, or on many rows at a time, in place of a loop over elements, and with sums that "
            "go on in place of sums begun anew"
        )
        advice = f"{seldom if _is_shown(line) else 'D'}o once, before the loop, what is the same in each turn"
        advice += f"{instead * _goes_over(facts, line, looks)}."
    return facts.finding(
        "idle_gap",
        place,
        operation=_SAVES if saves else "",
        count=sum(facts.run.look_counts[key] for key in looks),
        counted=Matching(Look, ("stack", "state"), frozenset(looks), detail="state"),
        cost_s=took / 1e9,
        gain_s=saved / 1e9,
        cause=(
            f"What is compiled waits {what} {cited(line)}{most}: {duration(took / 1e9)}, "
            f"by looks at the main thread, {percent(took / running)} of the time that neither compiling nor imports "
            "took."
        ),
        advice=advice,
        confidence="medium",
        also=(line,),
    )
