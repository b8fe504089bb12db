"""graph_break: something cut a graph that was meant to be one.

Breaks by design are no findings: ``backward()`` in a compiled step, functions that PyTorch and libraries keep out of
graphs themselves. Where such breaks, or breaks inside a library, leave nothing to compile, the call is the finding: it
captures no operation.

Cost: the tracing that a break made useless; for each graph after the break the fixed cost of a graph, taken from the
cheapest; and, where the value read at the break is a guard, every version compiled for another value (the break causes
these recompilations, so they are no findings of their own).
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.breaks import Broken, broken, captured, function_name
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures import (
    LIMIT,
    SHOWN,
    hit_a_limit,
    limit_clause,
    read_at_breaks,
    values_seen,
)
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.torch_compile import BehindTally, CallTally, RecompileRecord
from xlaprof.analysis.model import Finding, Place
from xlaprof.events import DynamoCompile, GraphBreak
from xlaprof.text.quantities import duration, plural, times

_OUTSIDE = (
    "Move what this line does out of the compiled function, before or after the call, or write it with tensor "
    "operations only."
)
_NAMED = 3  # functions


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line, and one for each call that was compiled for nothing."""
    explained: set[int] = set()
    behind = read_at_breaks(facts)
    for line, here in broken(facts).items():
        explained |= here.callers
        yield _finding(facts, here, behind.get(line, []))
    for stack, call in facts.run.torch_compile.calls.items():
        if not call.ops and call.broken and stack not in explained:
            yield _nothing(facts, facts.names.place(stack), call, stack)


def _finding(facts: Facts, here: Broken, behind: list[RecompileRecord]) -> Finding:
    place, first = here.place, here.tallies[0].event
    limit = next((record for record in behind if record.limit is not None), None)
    cause = [_what(facts, here)]
    if behind:
        values = values_seen([record.event.guards[0] for record in behind])
        again = sum(record.dur for record in behind) / 1e9
        read = "the value read" if all(record.event.guards[0].kind == "stack" for record in behind) else "the size made"
        cause.append(
            f"{read} here is a guard, so what follows was compiled again {times(len(behind))} "
            f"({_few([value for value, _ in values])}), {duration(again)} in all"
        )
        if limit is not None and limit.limit is not None:
            cause.append(limit_clause(limit.limit, limit.step))
    if any(one.plain for one in here.tallies) and not captured(facts, here.callers):
        cause.append("torch.compile captured 0 operations in all")
    apart = _apart(facts, place)
    restarted = sum(one.restarted for one in here.tallies)
    hints = dict.fromkeys(one.event.hint for one in here.tallies if one.event.hint)
    return facts.finding(
        "graph_break",
        place,
        operation=facts.names.text(first.op) if limit is None else LIMIT,
        count=sum(one.count for one in here.tallies),
        counted=Matching(GraphBreak, ("stack", "reason"), frozenset(here.keys), "reason"),
        cost_s=(restarted + apart.count * apart.least + sum(record.dur for record in behind)) / 1e9,
        cause=f"{'; '.join(cause)}.",
        advice=" ".join(hints) or _OUTSIDE,
        evidence=_evidence(facts, here, restarted, apart, behind),
        discriminator=first.reason,
    )


def _what(facts: Facts, here: Broken) -> str:
    """What is not compiled, or in how many pieces; and why."""
    reasons = dict.fromkeys(" ".join(one.event.reason.split()).rstrip(".") for one in here.tallies)
    why = ", and ".join(filter(None, reasons)) or "no reason was given"
    for inside in sorted({what for one in here.tallies for what in one.inside}):
        why += f", and it cannot leave {inside} half-way" if inside else ", and it cannot go on behind it"
    effects = [*_plain(facts, here), *_cut(facts, here)]
    return f"{', and '.join(effects)}: {why}"


def _plain(facts: Facts, here: Broken) -> Iterator[str]:
    """What runs as plain Python."""
    parts = {part for one in here.tallies for part in one.plain}
    whole = {(code, func) for code, func, resumed in parts if not resumed}
    if whole:
        yield f"Nothing of {_names(facts, whole)} is compiled, all of it runs as plain Python"
    for code, func, resumed in sorted(parts):
        if (code, func) not in whole:
            line = facts.names.place(resumed).line
            begin = "nothing" if whole else "Nothing"
            yield f"{begin} after line {line} of {function_name(facts, code, func)} is compiled"


def _cut(facts: Facts, here: Broken) -> Iterator[str]:
    """What is compiled in pieces."""
    plain = {(code, func) for one in here.tallies for code, func, _ in one.plain}
    cut = {(code, func) for one in here.tallies for code, func, _ in one.cut} - plain
    functions = [found for key in cut if (found := facts.run.torch_compile.functions.get(key))]
    graphs = max((len(one.graphs) for one in functions), default=0)
    pieces = f" and is {graphs} graphs instead of one" if graphs > 1 and len(cut) == 1 else ""
    count = f" {times(sum(one.count for one in here.tallies))}" if not plain and len(cut) < 2 else ""
    if cut:
        yield f"{_names(facts, cut)} {'was' if len(cut) == 1 else 'were'} cut in two here{count}{pieces}"
    elif not plain:
        function = facts.names.text(here.tallies[0].event.func)
        yield f"The compiled function{f' {function}' * bool(function)} was cut in two here{count}"


def _names(facts: Facts, functions: set[tuple[int, int]]) -> str:
    names = [function_name(facts, *one) or "the function" for one in sorted(functions)]
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _apart(facts: Facts, place: Place) -> BehindTally:
    """The graphs after the breaks at a line."""
    found = BehindTally()
    for stack, tally in facts.run.torch_compile.behind.items():
        line = facts.names.place(stack)
        if (line.file, line.line) == (place.file, place.line):
            found.merge(tally)
    return found


def _evidence(
    facts: Facts, here: Broken, restarted: int, apart: BehindTally, behind: list[RecompileRecord]
) -> tuple[str, ...]:
    evidence = []
    for event in (one.event for one in here.tallies):
        if event.gb:
            evidence.append(f"PyTorch's number for it: {event.gb}{f' ({event.explanation})' * bool(event.explanation)}")
        library = facts.names.place(event.at)
        if library.line:
            evidence.append(f"the break is in the library's {library.file}:{library.line}, which this line calls")
    if restarted:
        evidence.append(f"{duration(restarted / 1e9)} of tracing thrown away")
    if apart.count:
        least = duration(apart.least / 1e9)
        evidence.append(f"what follows is {plural(apart.count, 'graph')}; the cheapest took {least}")
    for record in behind[:SHOWN]:
        guard = record.event.guards[0]
        evidence.append(f"compile {record.event.compile}: {duration(record.dur / 1e9)}, {guard.old} -> {guard.new}")
    return tuple(dict.fromkeys(evidence))


def _nothing(facts: Facts, place: Place, call: CallTally, stack: int) -> Finding:
    library = "/site-packages/" in facts.names.place(call.first.code).file.replace("\\", "/")
    function = "" if library else function_name(facts, call.first.code, call.first.func)
    broken = [tally.event for tally in facts.run.torch_compile.breaks.values() if stack in tally.callers]
    return facts.finding(
        "graph_break",
        place,
        operation="",
        count=call.compiles,
        counted=Matching(DynamoCompile, ("stack",), frozenset([(stack,)]), "ops"),
        cost_s=call.dur / 1e9,
        cause=(
            f"torch.compile captured 0 operations of {function or 'what is called here'}, though it tried "
            f"{times(call.compiles)}: all of it runs as plain Python."
        ),
        advice="Compile the module inside instead (for DDP or FSDP the model before it is wrapped), or do without.",
        evidence=tuple(dict.fromkeys(_reason(facts, event) for event in broken))[:SHOWN],
        discriminator="nothing captured",
    )


def _reason(facts: Facts, event: GraphBreak) -> str:
    library = facts.names.place(event.at)
    where = f" ({library.file}:{library.line})" if library.line else ""
    return f"{event.reason}{where}{f', {event.gb}' * bool(event.gb)}"


def _few(values: list[str]) -> str:
    return ", ".join(values[:4]) + (f" and {len(values) - 4} more" if len(values) > 4 else "")


KIND = Kind(find, unit_of=("max_graph_breaks",), blamed_for=("max_recompiles",), leads=hit_a_limit)
