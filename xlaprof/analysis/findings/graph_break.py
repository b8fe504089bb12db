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

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures import LIMIT, SHOWN, hit_a_limit, limit_clause, read_at_break, values_seen
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.torch_compile import BehindTally, BreakTally, CallTally, RecompileRecord
from xlaprof.analysis.model import Finding, Place
from xlaprof.events import DynamoCompile, GraphBreak
from xlaprof.text.quantities import duration, plural, times


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and reason, and one for each call that was compiled for nothing."""
    groups: dict[tuple[str, int, str, str], tuple[Place, BreakTally, list[tuple[int, str]]]] = {}
    for (stack, reason), one in facts.run.torch_compile.breaks.items():
        if one.event.by_design or (one.event.at and not _captured(facts, one)):
            continue
        place = facts.names.place(stack)
        line = (place.file, place.line, reason, facts.names.text(one.event.op))
        _, tally, keys = groups.setdefault(line, (place, BreakTally(one.event, one.step), []))
        tally.merge(one)
        keys.append((stack, reason))
    explained: set[int] = set()
    for place, tally, keys in groups.values():
        explained |= tally.callers
        yield _finding(facts, place, tally, keys)
    for stack, call in facts.run.torch_compile.calls.items():
        if not call.ops and call.broken and stack not in explained:
            yield _nothing(facts, facts.names.place(stack), call, stack)


def _finding(facts: Facts, place: Place, tally: BreakTally, keys: list[tuple[int, str]]) -> Finding:
    event = tally.event
    why = " ".join(event.reason.split()).rstrip(".") or "no reason was given"
    behind = [
        record
        for record in facts.run.torch_compile.recompiles
        if read_at_break(facts, record) == (place.file, place.line)
    ]
    function = facts.names.text(event.func)
    limit = next((record for record in behind if record.limit is not None), None)
    cause = [_what(facts, function, tally, why)]
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
    if not tally.compiled and _captured(facts, tally) == 0:
        cause.append("torch.compile captured 0 operations in all")
    apart = _apart(facts, place)
    return facts.finding(
        "graph_break",
        place,
        operation=facts.names.text(event.op) if limit is None else LIMIT,
        count=tally.count,
        counted=Matching(GraphBreak, ("stack", "reason"), frozenset(keys), "reason"),
        cost_s=(tally.restarted + apart.count * apart.least + sum(record.dur for record in behind)) / 1e9,
        cause=f"{'; '.join(cause)}.",
        advice=event.hint or _advice(place.code),
        evidence=_evidence(facts, tally, apart, behind),
        discriminator=event.reason,
    )


def _what(facts: Facts, function: str, tally: BreakTally, why: str) -> str:
    if not tally.compiled:
        return f"Nothing of {function or 'the function'} is compiled, it runs as plain Python: {why}"
    graphs = _graphs(facts, tally)
    if function and graphs > 1:
        return f"{function} was cut in two here {times(tally.count)} and is {graphs} graphs instead of one: {why}"
    return f"The compiled function{f' {function}' * bool(function)} was cut in two here {times(tally.count)}: {why}"


def _graphs(facts: Facts, tally: BreakTally) -> int:
    """The number of graphs into which the function is cut."""
    found = (one for one in facts.run.torch_compile.functions.values() if one.name == tally.event.func)
    return max((len(one.graphs) for one in found if one.callers & tally.callers), default=0)


def _captured(facts: Facts, tally: BreakTally) -> int:
    calls = facts.run.torch_compile.calls
    return sum(calls[stack].ops for stack in tally.callers if stack in calls)


def _apart(facts: Facts, place: Place) -> BehindTally:
    """The graphs after the breaks at a line."""
    found = BehindTally()
    for stack, tally in facts.run.torch_compile.behind.items():
        if facts.names.place(stack) == place:
            found.merge(tally)
    return found


def _evidence(facts: Facts, tally: BreakTally, apart: BehindTally, behind: list[RecompileRecord]) -> tuple[str, ...]:
    event, evidence = tally.event, []
    if event.gb:
        evidence.append(f"PyTorch's number for it: {event.gb}{f' ({event.explanation})' * bool(event.explanation)}")
    library = facts.names.place(event.at)
    if library.line:
        evidence.append(f"the break is in the library's {library.file}:{library.line}, which this line calls")
    if tally.restarted:
        evidence.append(f"{duration(tally.restarted / 1e9)} of tracing thrown away")
    if apart.count:
        least = duration(apart.least / 1e9)
        evidence.append(f"what follows is {plural(apart.count, 'graph')}; the cheapest took {least}")
    for record in behind[:SHOWN]:
        guard = record.event.guards[0]
        evidence.append(f"compile {record.event.compile}: {duration(record.dur / 1e9)}, {guard.old} -> {guard.new}")
    return tuple(evidence)


def _nothing(facts: Facts, place: Place, call: CallTally, stack: int) -> Finding:
    library = "/site-packages/" in facts.names.place(call.first.code).file.replace("\\", "/")
    function = "" if library else facts.names.text(call.first.func)
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


def _advice(code: str) -> str:
    if "print(" in code:
        return "Remove the print from the compiled function, or print after it returns."
    if ".item()" in code or ".tolist()" in code or "float(" in code or "int(" in code:
        return "Keep the value a tensor (torch.where, torch.clamp) instead of reading it in the compiled function."
    if code.startswith(("if ", "while ")):
        return "Replace the condition on a tensor by torch.where or torch.cond."
    return "Move this line out of the compiled function, or write it with tensor operations only."


KIND = Kind(find, unit_of=("max_graph_breaks",), blamed_for=("max_recompiles",), leads=hit_a_limit)
