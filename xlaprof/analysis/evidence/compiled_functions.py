"""What ``torch.compile`` did, by function; and why each second of its compiling was spent.

Compiling is a defect only where it was done again, or in vain: that part is charged to findings. The first version of
a graph, or one for another phase of the program, is necessary. Whatever the recording does not explain is said to be
unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from xlaprof.analysis.evidence.breaks import broken, function_name
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures import sort_out
from xlaprof.analysis.fold.torch_compile import FunctionTally
from xlaprof.analysis.model import Charge, CompiledFunctions, Finding, FunctionStat
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LISTED, NAMED
from xlaprof.events import DynamoCompile, GraphBreak
from xlaprof.text.quantities import duration, plural

UNACCOUNTED = "unaccounted"
_Key = tuple[int, int]  # of a function: stack of its definition, name


def compiled_functions(facts: Facts, findings: tuple[Finding, ...]) -> CompiledFunctions:
    """The section on torch.compile of a settled run; ``findings``: all of the run."""
    functions = facts.run.torch_compile.functions
    breaks: dict[_Key, int] = {}
    for here in broken(facts).values():
        for key in here.functions:
            breaks[key] = breaks.get(key, 0) + 1
    longest = nlargest(LISTED, functions.items(), key=lambda item: item[1].dur)
    total = sum(one.dur for one in functions.values())
    return CompiledFunctions(
        count=len(functions),
        graphs=sum(one.versions for one in functions.values()),
        total_s=total / 1e9,
        functions=tuple(_stat(facts, key, tally, breaks.get(key, 0)) for key, tally in longest),
        charges=tuple(_charges(facts, findings, total)),
    )


def _stat(facts: Facts, key: _Key, tally: FunctionTally, breaks: int) -> FunctionStat:
    return FunctionStat(
        name=facts.names.text(tally.name),
        place=facts.names.place(key[0]),
        backend=facts.names.text(tally.backend),
        graphs=tally.versions,
        again=tally.again,
        breaks=breaks,
        compile_s=tally.dur / 1e9,
        plain=tuple(_plain(facts, tally)),
        phases=tuple(_phases(tally)),
    )


def _phases(tally: FunctionTally) -> Iterator[tuple[str, float]]:
    """All of the function's compile time: what no phase has is unaccounted."""
    if tally.phases:
        spent = dict(tally.phases)
        spent[UNACCOUNTED] = spent.get(UNACCOUNTED, 0) + max(0, tally.dur - sum(spent.values()))
        yield from sorted(((name, ns / 1e9) for name, ns in spent.items() if ns), key=lambda one: -one[1])


def _plain(facts: Facts, tally: FunctionTally) -> Iterator[str]:
    if 0 in tally.plain:
        yield "all of it"
    else:
        for line in sorted(facts.names.place(resumed).line for resumed in tally.plain):
            yield f"what follows line {line}"
    if tally.limit is not None:
        yield f"since step {tally.limited} what fits no version" if tally.limited > 0 else "what fits no version"


def _charges(facts: Facts, findings: tuple[Finding, ...], total: int) -> Iterator[Charge]:
    """The parts of ``total``, in ns; without those that are 0."""
    functions = facts.run.torch_compile.functions.values()
    failed = facts.run.torch_compile.failed
    again, _, necessary = sort_out(facts)
    charged = {
        "break": sum(one.cost_s for one in findings if one.kind == "graph_break" and _of_dynamo(one)),
        "recompile": sum(record.dur for group in again for record, _, _ in group) / 1e9,
        "necessary": sum(record.dur for record in necessary) / 1e9,
        "failed": sum(one.dur for one in failed) / 1e9,
        "unexplained": sum(one.unknown for one in functions) / 1e9,
    }
    charged = {"first": max(0.0, total / 1e9 - sum(charged.values())), **charged}
    why = {
        "first": _first(facts, tuple(functions), total),
        "break": "for what graph breaks made useless or cut off: see the findings.",
        "recompile": "for compiling again: see the findings.",
        "necessary": f"for {plural(len(necessary), 'version')} for another use of the function (evaluation, an "
        "optimizer's second step), another object of the class or the other of two sizes under dynamic=False: normal.",
        "failed": f"for {plural(len(failed), 'compilation')} that failed: {'; '.join(_failures(facts))}.",
        "unexplained": "is unexplained: compiled again, but the recording does not say why (it began too late).",
    }
    yield from (Charge(what, seconds, why[what]) for what, seconds in charged.items() if seconds > 0)


def _failures(facts: Facts) -> Iterator[str]:
    for one in facts.run.torch_compile.failed[:NAMED]:
        ended = facts.run.end is not None and facts.run.end.error == one.fail
        what = f"{function_name(facts, one.code, one.func)}, called at {short(facts.names.place(one.stack))}"
        yield f"{what} ({one.fail}{', which ended the program' * ended})"


def _of_dynamo(finding: Finding) -> bool:
    return getattr(finding.counted, "event", None) in (GraphBreak, DynamoCompile)


def _first(facts: Facts, functions: tuple[FunctionTally, ...], total: int) -> str:
    """Why the first compilations are no finding, and what makes them shorter all the same."""
    graphs = sum(one.versions - one.again for one in functions)
    cached = sum(one.cached for one in functions) / 1e9
    text = f"for the first compilation of {plural(graphs, 'graph')}: normal."
    if cached:
        of_all = f"Of the {duration(total / 1e9)} in all {duration(cached)}"
        return f"{text} {of_all} went into graphs that inductor had in its cache already."
    if any(facts.names.text(one.backend) == "inductor" for one in functions):
        text += (
            " A second run on this machine takes most of it from inductor's cache, on another one after "
            "torch.compiler.save_cache_artifacts()."
        )
    return text
