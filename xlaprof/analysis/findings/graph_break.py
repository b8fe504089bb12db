"""graph_break: something cut a graph that was meant to be one.

Breaks by design are no findings: ``backward()`` in a compiled step, functions that PyTorch and libraries keep out of
graphs themselves. Where such breaks, or breaks inside a library, leave nothing to compile, the call is the finding: it
captures no operation.

Cost: the tracing that a break made useless; for each graph beyond one the fixed cost of a graph, taken from the
cheapest on either side of the break, for what they compute has to be compiled in any case; and every version compiled
for another of the values that the break hands over, which it reads or makes, or of a function that has a graph of its
own only for the break (these recompilations are no findings of their own). What passes between the graphs at run time
is measured and told beside it: it holds the program's own work there, which a fix may move and not spare.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from xlaprof.analysis.compiled.ran import Between, by_break
from xlaprof.analysis.evidence import library_options
from xlaprof.analysis.evidence.breaks import Broken, captured, causes, ending, function_name, leading
from xlaprof.analysis.evidence.counted import Matching, values
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.guard_failures import told
from xlaprof.analysis.evidence.guard_failures.advised import NEEDS
from xlaprof.analysis.evidence.guard_failures.case import sizes_of_dim
from xlaprof.analysis.evidence.guard_failures.sorting import (
    LIMIT,
    Blamed,
    cost_s,
    hit_a_limit,
    is_a_librarys,
    is_cut_out,
    limit_hit,
    sort_out,
)
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.torch_compile import CallTally, PieceTally
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.principles import NAMED
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.sums import grouped, merged
from xlaprof.analysis.uses import Use, needed_for, read_of
from xlaprof.events import DynamoCompile, GraphBreak
from xlaprof.events.dynamo import FAILS, WHOLE
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated

_OUTSIDE = (
    "Move what this line does out of the compiled function, before or after the call, or write it with tensor "
    "operations only."
)
_READS = re.compile(r"needs the values? of")  # a reason

#: of a selection by a mask, and what Dynamo calls what it stands in
_SELECTS, _LOOP = re.compile(r"\binstead of selecting\b"), "a loop"
_AT_ONCE = (
    "Compute it for all turns of the loop at once, without a loop and without selecting: add up with index_add_ (or "
    "scatter_add_, torch.bincount for counts), or multiply by torch.nn.functional.one_hot of what is compared. With a "
    "mask in the loop all of its turns would stand in one graph, one after the other."
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line, with what breaks in what it calls, and one for each call compiled for nothing."""
    explained: set[int] = set()
    behind = sort_out(facts).behind
    several = causes(facts)
    found: list[Finding] = []
    for here, between in zip(several, by_break(facts, several), strict=True):
        explained |= here.callers
        of_it = [one for place in here.places for one in behind.get(place.at, [])]
        found.append(_finding(facts, here, of_it, between))
    first = leading(facts, several)
    for at, finding in enumerate(found):
        if first[at] == at:
            parts = [one for other, one in enumerate(found) if first[other] == at != other]
            yield facts.joined(finding, parts) if parts else finding
    for stack, call in facts.run.torch_compile.calls.items():
        if not call.ops and call.broken and stack not in explained and call.first.compile not in ending(facts):
            yield _nothing(facts, facts.place(stack), call, stack)


def _finding(facts: Facts, here: Broken, behind: list[Blamed], between: Between) -> Finding:
    place, first = here.places[0], here.tallies[0].event
    limit = limit_hit(behind)
    cause = [_what(facts, here), *_handed_over(facts, here, behind), *told.limit_clause(facts, limit)]
    if any(one.plain for one in here.tallies) and not captured(facts, here.callers):
        cause.append("torch.compile captured 0 operations in all")
    if between.text:
        cause.append(between.text)
    further, least = _apart(facts, here)
    restarted = sum(one.restarted for one in here.tallies)
    hints = dict.fromkeys(one.event.hint for one in here.tallies if one.event.hint)
    return facts.finding(
        "graph_break",
        place,
        operation=facts.text(first.op) if limit is None else LIMIT,
        count=sum(one.count for one in here.tallies),
        counted=Matching(GraphBreak, ("stack", "reason"), frozenset(here.by), "reason"),
        cost_s=(restarted + further * least) / 1e9 + cost_s(behind),
        cause=f"{'; '.join(cause)}.",
        advice=_advice(facts, here, " ".join(hints) or _OUTSIDE, behind),
        evidence=dict.fromkeys(
            [
                *_evidence(facts, here, restarted, further, least),
                *[f"timed {times(between.measured)} between the graphs on both sides"] * bool(between.measured),
                *told.evidence(behind),
            ]
        ),
        between_s=between.total_s,
        discriminator=first.reason,
        also=here.places,
    )


def _advice(facts: Facts, here: Broken, advice: str, behind: list[Blamed]) -> str:
    """What to do: an option of the library that breaks, and what else the line needs, or what follows."""
    place, event = here.places[0], here.tallies[0].event
    library = facts.place(event.at)
    if library.line:
        said = library_options.advise("graph_break", msgspec.structs.replace(place, library=(library,)), "", advice)
        return said.advice if said.is_option else advice
    if _SELECTS.search(advice) and any(_LOOP in one.inside for one in here.tallies):
        return _AT_ONCE
    if _READS.search(event.reason) and (need := _need(facts, place, behind)):
        instead, does = NEEDS[need]
        larger = " (the larger of two with torch.maximum)" * (need == "condition")
        before = (
            ". Where it follows from the arguments alone, it can be made before the call as well, where the batch is "
            "made: pass it as an int"
        )
        return (
            f"{instead}{larger}: what follows {does} in Python, and a graph has no number for that"
            f"{before * (not _is_called(facts, here))}."
        )
    return advice


def _is_called(facts: Facts, here: Broken) -> bool:
    """Whether a compiled function calls that of the line, and hands it what it has computed."""
    parts = (part for one in here.tallies for part in (*one.cut, *one.plain))
    functions = {facts.text(func).rpartition(".")[2] for _, func, _ in parts}
    return bool(functions - {here.places[0].func.rpartition(".")[2]})


def _need(facts: Facts, place: Place, behind: list[Blamed]) -> str:
    """What the number that a line reads is needed for, there or where it goes: a key of ``NEEDS``; "": not known."""
    targets = [one for node in nodes(place.code, ast.Assign) for one in node.targets]
    names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    lines = {facts.place(guard.stack).code for _, guard, _ in behind if guard.kind == "value"}
    found = (needed_for(code, name) for code in sorted(lines) for name in names)
    here = "size" if read_of(place.code, scalar=True).use == Use.SIZES else ""
    return next(filter(None, found), here)


def _handed_over(facts: Facts, here: Broken, behind: list[Blamed]) -> Iterator[str]:
    """What follows the break was compiled again for: a clause for each sort of value that it hands over."""
    plain = {part[0] for tally in here.tallies for part in tally.plain}

    def sorted_as(one: Blamed) -> str:
        record, guard, _ = one
        if not guard.handed and is_a_librarys(facts, record.event.code):
            return "apart"
        if not guard.handed and (plain - {record.event.code} or is_cut_out(facts, record, here)):
            return "within"
        return "the size made" if guard.dim >= 0 else "" if guard.kind in ("freed", "object") else "the value read"

    for sort, blamed in grouped(behind, sorted_as).items():
        guards = [guard for _, guard, _ in blamed]
        again = f"what follows was compiled again {times(len(blamed))}"
        seconds = duration(cost_s(blamed))
        by_itself = {(one.event.code, one.event.func) for one, _, _ in blamed if is_cut_out(facts, one, here)}
        if sort == "apart":
            names = " and ".join(dict.fromkeys(guard.subject for guard in guards if guard.subject))
            yield (
                f"a library's function, which has a graph of its own only for that, was compiled again "
                f"{times(len(blamed))} for {names or 'its arguments'}, {seconds} in all"
            )
        elif sort == "within":
            which = _names(facts, by_itself) if by_itself else "what it calls"
            yield (
                f"{which} is compiled by itself, in place of a part of one graph, and was compiled again "
                f"{times(len(blamed))}, {seconds} in all"
            )
        elif sort:
            seen = _few([value for value, _ in values(map(sizes_of_dim, guards))])
            yield f"{sort} here is a guard, so {again} ({seen}), {seconds} in all"
        else:
            name = guards[0].subject
            yield f"{name}, kept over the break, is another object in each call, so {again}, {seconds} in all"


def _what(facts: Facts, here: Broken) -> str:
    """What is not compiled, or in how many pieces; and why."""
    reasons = dict.fromkeys(" ".join(one.event.reason.split()).rstrip(".") for one in here.tallies)
    why = ", and ".join(filter(None, reasons)) or "no reason was given"
    left = (one for one in here.tallies if not one.event.reason.startswith(FAILS))
    for inside in sorted({what for one in left for what in one.inside}):
        why += f", and it cannot leave {inside} half-way" if inside else ", and it cannot go on behind it"
    effects = [*_plain(facts, here), *_cut(facts, here)]
    return f"{', and '.join(effects)}: {why}"


def _plain(facts: Facts, here: Broken) -> Iterator[str]:
    """What runs as plain Python."""
    parts = {part for one in here.tallies for part in one.plain}
    whole = {(code, func) for code, func, resumed in parts if not resumed}
    if whole:
        raised = all(one.inside == {WHOLE} for one in here.tallies if one.plain)
        runs = "a call of it is an error" if raised else "all of it runs as plain Python"
        yield f"Nothing of {_names(facts, whole)} is compiled, {runs}"
    for code, func, resumed in sorted(parts):
        if (code, func) not in whole:
            line = facts.place(resumed).line
            begin = "nothing" if whole else "Nothing"
            yield f"{begin} after line {line} of {function_name(facts, code, func)} is compiled"


def _cut(facts: Facts, here: Broken) -> Iterator[str]:
    """What is compiled in pieces."""
    plain = {(code, func) for one in here.tallies for code, func, _ in one.plain}
    cut = {(code, func) for one in here.tallies for code, func, _ in one.cut} - plain
    functions = [found for key in cut if (found := facts.run.torch_compile.functions.get(key))]
    graphs = max((len(one.graphs) for one in functions), default=0)
    pieces = f" and is {graphs} graphs instead of one" if graphs > 1 and len(cut) == 1 else ""
    at, others = "here", sorted(place.line for place in here.places[1:])
    if others:
        at += f" and in {'line' if len(others) == 1 else 'lines'} {_few(others)}"
    if not plain and len(cut) < 2:
        count = times(sum(one.count for one in here.tallies))
        at += f", {count} in all," if others else f" {count}"
    if cut:
        yield f"{_names(facts, cut)} {'was' if len(cut) == 1 else 'were'} cut in two {at}{pieces}"
    elif not plain:
        function = facts.text(here.tallies[0].event.func)
        yield f"The compiled function{f' {function}' * bool(function)} was cut in two {at}"


def _names(facts: Facts, functions: set[tuple[int, int]]) -> str:
    names = [function_name(facts, *one) or "the function" for one in sorted(functions)]
    return enumerated(names, NAMED)


def _apart(facts: Facts, here: Broken) -> tuple[int, int]:
    """The graphs on both sides of the breaks, but for the one that there would be without: how many, and the time of
    the cheapest."""
    known = facts.run.torch_compile
    lines = {place.at for place in here.places}
    lines |= {place.at for stack, _ in here.by for place in facts.names.frames(stack)}  # what calls it is cut, too
    before, behind = (
        merged(PieceTally, (tally for stack, tally in pieces.items() if facts.place(stack).at in lines))
        for pieces in (known.before, known.behind)
    )
    least = min((one.least for one in (before, behind) if one.count), default=0)
    return max(0, behind.count - (not before.count)), least


def _evidence(facts: Facts, here: Broken, restarted: int, further: int, least: int) -> Iterator[str]:
    for event in (one.event for one in here.tallies):
        if event.gb:
            yield f"PyTorch's number for it: {event.gb}{f' ({event.explanation})' * bool(event.explanation)}"
        library = facts.place(event.at)
        if library.line:
            yield f"the break is in the library's {library.file}:{library.line}, which this line calls"
    if restarted:
        yield f"{duration(restarted / 1e9)} of tracing thrown away"
    if further:
        yield f"it makes {plural(further, 'graph')} more than one; the cheapest took {duration(least / 1e9)}"


def _nothing(facts: Facts, place: Place, call: CallTally, stack: int) -> Finding:
    function = "" if is_a_librarys(facts, call.first.code) else function_name(facts, call.first.code, call.first.func)
    reasons = []
    for event in (one.event for one in facts.run.torch_compile.breaks.values() if stack in one.callers):
        library = facts.place(event.at)
        where = f" ({library.file}:{library.line})" if library.line else ""
        reasons.append(f"{event.reason}{where}{f', {event.gb}' * bool(event.gb)}")
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
        evidence=listed(list(dict.fromkeys(reasons))),
        discriminator="nothing captured",
    )


def _few(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:4])) + (f" and {len(values) - 4} more" if len(values) > 4 else "")


KIND = Kind(find, unit_of=("max_graph_breaks",), blamed_for=("max_recompiles",), leads=hit_a_limit)
