"""What ``torch.compile`` did, by function; and why each second of compiling was spent.

Compiling is a defect only where it was done again, or in vain: that part is charged to findings. The first version of
a graph, or one for another phase of the program, is necessary. Whatever the recording does not explain is said to be
unexplained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import chain, islice

from msgspec.structs import replace

from xlaprof.analysis.evidence.breaks import broken, function_name
from xlaprof.analysis.evidence.compilation import going_on
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures.case import sizes_of_dim
from xlaprof.analysis.evidence.guard_failures.sorting import Blamed, cost_s, sort_out
from xlaprof.analysis.evidence.guard_failures.told import steps_around_limit
from xlaprof.analysis.evidence.looping import outermost, turns_ns
from xlaprof.analysis.fold.torch_compile import RAISED, FunctionTally
from xlaprof.analysis.model import (
    Charge,
    CompiledFunctions,
    ConversionStat,
    CudaGraphStat,
    Finding,
    FunctionStat,
)
from xlaprof.analysis.model.compiled import GraphCodeStat, GraphTimeStat, RunTimeStat
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import (
    LARGE,
    LISTED,
    LONG_S,
    MANY,
    NAMED,
    SHOWN,
)
from xlaprof.events import Guard
from xlaprof.text.quantities import duration, plural, size_text, times
from xlaprof.text.strings import enumerated

UNACCOUNTED = "unaccounted"
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
    lasts, _ = going_on(facts.run, "dynamo")
    total = sum(one.dur for one in functions.values()) + lasts
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


def _of_turns(facts: Facts, findings: tuple[Finding, ...]) -> Counter[tuple[int, str]]:
    """ns of each version that the turns of a loop took which is a finding."""
    loops = {one.place.at for one in findings if one.kind == "unrolled_loop" and not one.operation}
    found = Counter[tuple[int, str]]()
    for event in facts.run.torch_compile.unrolled:
        if outermost(facts.names, event.loop).at in loops:
            found[event.code, event.compile] += int(turns_ns(facts, event))
    return found


def _charges(facts: Facts, findings: tuple[Finding, ...], total: int) -> Iterator[Charge]:
    """The parts of ``total``, in ns; without those that are 0."""
    functions = facts.run.torch_compile.functions.values()
    told = {one.event.compile for here in broken(facts).values() for one in here.tallies if one.event.skipped}
    failed = [one for one in facts.run.torch_compile.failed if one.compile not in told]  # which broke nothing
    again, _, necessary, chosen = sort_out(facts)
    turns = _of_turns(facts, findings)
    lasts, where = going_on(facts.run, "dynamo")
    charged = {
        "break": sum(one.cost_s for one in findings if one.kind == "graph_break"),
        "loop": sum(one.cost_s for one in findings if one.kind == "unrolled_loop" and not one.operation),
        "recompile": sum(record.dur for group in again for record, _, _ in group) / 1e9,
        "necessary": sum(record.dur - turns[record.event.code, record.event.compile] for record in necessary) / 1e9,
        "chosen": sum(map(cost_s, chosen))
        - sum(turns[record.event.code, record.event.compile] for group in chosen for record, _, _ in group) / 1e9,
        "failed": sum(one.dur for one in failed) / 1e9,
        "unexplained": sum(one.unknown for one in functions) / 1e9,
        "open": lasts / 1e9,
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
        "open": f"for {where}.",
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
