"""recompile, of ``torch.compile``: a function compiled again because a guard of every version it has failed.

Grouped by cause: all recompilations that one kind of change at one line made. Not a finding are the first version for
another object of the class (a block of a model that is compiled block by block), a version for another phase of the
program (evaluation, called from a line of its own in another mode), and what a value read at a graph break made, or the
size of what was selected there: that is told with the break.

The recompile limit is the loudest finding there is, whatever was measured: from then on the function runs eagerly where
no version fits, and nobody says so. Cost: the compile time of the versions, XLA's part included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_advice import advice, remedy
from xlaprof.analysis.fold.compiled import RecompileRecord
from xlaprof.analysis.model import Finding, FromTo, Moment, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.events import DynamoLimit, Guard
from xlaprof.text.quantities import duration, times

#: operation of the finding about a limit
LIMIT = "torch._dynamo.config.recompile_limit"
_SHOWN = 8
_SIZES = re.compile(r"\[([\d, ?]*)\]")

#: kinds of guards -> what changed, in words
WHAT = {
    "shape": "shape",
    "size bound": "shape",
    "stride": "memory layout (stride)",
    "rank": "shape (rank)",
    "dtype": "dtype",
    "device": "device",
    "dispatch": "kind of tensor (dispatch keys)",
    "requires_grad": "requires_grad of an input",
    "value": "Python value",
    "length": "Python value (length)",
    "type": "Python type",
    "object": "Python object",
    "keys": "Python value (keys)",
    "attribute": "attribute",
    "training": "training mode",
    "mode": "mode of PyTorch",
    "aliasing": "which inputs are the same tensor",
    "backend": "backend",
    "freed": "object freed",
}
_SIZED = frozenset({"shape", "size bound", "stride"})
#: Dynamo's name for a value that is on the stack where a function goes on behind a break
_LEFT_BEHIND = "___stack"
#: told at the line of the call: it is the caller who gives another tensor, or another mode
_CALLERS = frozenset(
    {"shape", "size bound", "stride", "rank", "dtype", "device", "dispatch", "requires_grad", "training", "mode"}
    | {"aliasing", "backend", "freed"}
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line, kind of change and function."""
    groups: dict[tuple[str, int, str, str], list[tuple[RecompileRecord, Guard, Place]]] = {}
    pieces: dict[tuple[object, ...], tuple[str, int, str, str]] = {}
    known: dict[tuple[int, str, str], Place] = {}  # guard -> line that made it, which is not told of every version
    for record in facts.run.torch_compile.recompiles:
        guard = _to_blame(record)
        if record.limit is None and record.due:
            continue
        if read_at_break(facts, record) is not None:
            continue
        same = (record.event.code, guard.kind, guard.subject)
        if facts.names.place(guard.stack).line:
            known.setdefault(same, facts.names.place(guard.stack))
        place = _place(facts, record, guard, known.get(same, NOWHERE))
        kind = "shape" if guard.kind == "stride" else guard.kind
        # the same size that changed makes all pieces of a function anew, and each has a name of its own for it
        change = (place.file, place.line, kind, *_of_dim(guard), record.step)
        key = pieces.setdefault(change, (place.file, place.line, kind, guard.subject))
        groups.setdefault(key, []).append((record, guard, place))
    for recompiles in groups.values():
        if len(recompiles) > 1 or not _makes_state(facts, *recompiles[0][:2]):
            yield _finding(facts, recompiles)
    for limit, step in facts.run.torch_compile.limits:
        yield _unexplained(facts, limit, step)


def _makes_state(facts: Facts, record: RecompileRecord, guard: Guard) -> bool:
    """An optimizer's second step: it had no state in the first. That is warm-up."""
    file = facts.names.place(record.event.code).file.replace("\\", "/")
    return "/torch/optim/" in file and "self.state" in guard.text and record.limit is None


def read_at_break(facts: Facts, record: RecompileRecord) -> tuple[str, int] | None:
    """File and line of the graph break whose value, or its size, was the guard, if it was one; None: another guard."""
    guard = _to_blame(record)
    if not record.event.resumed:
        return None
    read = record if guard.kind == "stack" or _sized_at_break(facts, guard) else _carried(facts, record, guard)
    if read is None:
        return None
    place = facts.names.place(read.event.resumed)
    return (place.file, place.line)


def _carried(facts: Facts, record: RecompileRecord, guard: Guard) -> RecompileRecord | None:
    """Where a variable behind a break holds what was read at an earlier one: the recompilation told of that."""
    if guard.kind != "value":
        return None
    for other in facts.run.torch_compile.recompiles:
        told = _to_blame(other)
        same = other.event.func == record.event.func and (told.old, told.new) == (guard.old, guard.new)
        if same and other.event.resumed and told.kind == "stack":
            return other
    return None


def _sized_at_break(facts: Facts, guard: Guard) -> bool:
    """The size of what a graph break left behind, a selection by a mask, which no argument has."""
    if guard.kind not in _SIZED or not guard.subject.startswith(_LEFT_BEHIND):
        return False
    others = (_to_blame(record) for record in facts.run.torch_compile.recompiles)
    return all(one.subject.startswith(_LEFT_BEHIND) or _of_dim(one) != _of_dim(guard) for one in others)


def hit_a_limit(finding: Finding) -> bool:
    """A limit of ``torch._dynamo.config`` was hit, which switches compilation off."""
    return finding.operation.startswith("torch._dynamo.config.")


def limit_clause(limit: DynamoLimit, step: int) -> str:
    """What hitting the limit means: a clause without a full stop."""
    since = f"since step {step}" if step > 0 else "since then"
    value = f" = {limit.value}" if limit.value else ""
    return (
        f"with that torch._dynamo.config.{limit.limit}{value} was hit, and {since} whatever fits no version runs "
        "eagerly, silently"
    )


def values_seen(guards: Sequence[Guard]) -> list[tuple[str, int]]:
    """Every value of what changed, and how often it asked for a version, in order of first use."""
    counts: dict[str, int] = {}
    for i, guard in enumerate(guards):
        old, new = _of_dim(guard)
        if not i and old:
            counts[old] = 1
        if new:
            counts[new] = counts.get(new, 0) + 1
    return list(counts.items())


def _of_dim(guard: Guard) -> tuple[str, str]:
    """The size of the dimension that changed, where one did; else what the guard says."""
    old, new = _sizes(guard.old), _sizes(guard.new)
    if guard.dim < 0 or new is None or guard.dim >= len(new):
        return guard.old, guard.new
    return (old[guard.dim] if old is not None and len(old) == len(new) else ""), new[guard.dim]


def _sizes(text: str) -> list[str] | None:
    found = _SIZES.search(text)
    return [part.strip() for part in found[1].split(",") if part.strip()] if found else None


def _to_blame(record: RecompileRecord) -> Guard:
    guards = record.event.guards
    return guards[0] if guards else Guard("guard")


def _place(facts: Facts, record: RecompileRecord, guard: Guard, made: Place) -> Place:
    call = facts.names.place(record.event.stack)
    if (guard.kind in _CALLERS and call.line) or not made.line:
        return call if call.line else facts.names.place(record.event.code)
    return made


def _finding(facts: Facts, recompiles: list[tuple[RecompileRecord, Guard, Place]]) -> Finding:
    first, guard, place = recompiles[0]
    records = [record for record, _, _ in recompiles]
    guards = [one for _, one, _ in recompiles]
    cost = sum(record.dur for record in records) / 1e9
    limit = next((record for record in records if record.limit is not None), None)
    function = facts.names.text(first.event.func) or "the function"
    tally = facts.run.torch_compile.functions.get((first.event.code, first.event.func))
    backend = facts.names.text(tally.backend) if tally is not None else ""
    changes = list(dict.fromkeys((one.subject, one.old, one.new) for one in guards))
    compiled = [record for record in records if record.limit is None]
    clauses = [
        f"{_cause(guard, len(changes))}: {function} was compiled again {times(len(compiled))}, {duration(cost)} in all"
    ]
    if limit is not None and limit.limit is not None:
        clauses.append(limit_clause(limit.limit, limit.step))
    finding = facts.finding(
        "recompile",
        place,
        operation="" if limit is None else LIMIT,
        count=len(records),
        counted=Known(tuple(map(_moment, records, guards))),
        cost_s=cost,
        cause=f"{'; '.join(clauses)}.",
        advice=advice(guard, guards, backend, limited=limit is not None),
        change=FromTo(_what(guard), guard.old, guard.new),
        evidence=_evidence(facts, recompiles),
        discriminator=f"torch.compile {guard.kind} {guard.subject}",
        also=_also(facts, recompiles, place),
        values=tuple(values_seen(guards)),
        remedy=remedy(guard, guards, backend),
    )
    return finding if limit is None else msgspec.structs.replace(finding, severity="high")


def _moment(record: RecompileRecord, guard: Guard) -> Moment:
    return Moment(record.event.t, record.dur, detail=f"{guard.old} -> {guard.new}" if guard.new else guard.text)


def _what(guard: Guard) -> str:
    what = WHAT.get(guard.kind, "guard")
    return f"{what} of {guard.subject}" if guard.subject else what


def _cause(guard: Guard, kinds: int) -> str:
    more = f" (and {kinds - 1} more such {'change' if kinds == 2 else 'changes'})" if kinds > 1 else ""
    went = f"from {guard.old} to {guard.new}{more}" if guard.old and guard.new else f"({guard.text}){more}"
    name = guard.subject or "a value"
    match guard.kind:
        case "shape":
            return f"The shape of {name} changed {went}"
        case "size bound":
            return f"The shape of {name} changed {went}, and a version holds only while {guard.text}"
        case "rank" | "dtype" | "device":
            return f"The {guard.kind} of {name} changed {went}"
        case "stride":
            return f"The memory layout of {name} changed: its stride went {went}"
        case "dispatch":
            return (
                f"{name} is another kind of tensor than before, it has other dispatch keys (a subclass, inference mode)"
            )
        case "requires_grad":
            return f"requires_grad of {name} changed {went}"
        case "length":
            return f"The length of {name}, which is part of the graph, changed {went}"
        case "type":
            return f"The Python type of {name} changed {went}"
        case "object":
            return f"{name} is another object than it was compiled for: it changed {went}"
        case "keys" | "attribute":
            return f"{name} was {guard.old} and now is {guard.new}{more}"
        case "training":
            return f"The training mode of {name} changed {went}"
        case "mode":
            return f"The global state {name} changed {went}"
        case "aliasing":
            return f"The inputs {name} are now the same tensor"
        case "backend":
            return "torch.compile was called again with another backend function"
        case "freed":
            return f"{name}, which the version was compiled for, has been freed"
        case "value" | "stack":
            return f"The Python value of {name}, a constant of the graph, changed {went}"
    return f"A guard failed ({guard.text or 'PyTorch did not tell which'}){more}"


def _evidence(facts: Facts, recompiles: list[tuple[RecompileRecord, Guard, Place]]) -> tuple[str, ...]:
    evidence = []
    for record, guard, _ in recompiles[:_SHOWN]:
        when = f"step {record.step}" if record.step > 0 else f"compile {record.event.compile}"
        change = f"{guard.subject} {guard.old} -> {guard.new}" if guard.new else guard.text
        evidence.append(f"{when}: {duration(record.dur / 1e9)}, {change.strip()}")
        others = [f"{one.subject} {one.old} -> {one.new}".strip() for one in record.event.guards[1:4]]
        if others:
            evidence.append(f"{when}: failed too: {', '.join(others)}")
    if len(recompiles) > _SHOWN:
        evidence.append(f"and {len(recompiles) - _SHOWN} more")
    if recompiles[0][1].text:
        evidence.append(f"guard: {recompiles[0][1].text}")
    return tuple(evidence)


def _also(facts: Facts, recompiles: list[tuple[RecompileRecord, Guard, Place]], place: Place) -> tuple[Place, ...]:
    """The line that made the guard, the line of the call and that of the definition."""
    lines: dict[tuple[str, int], Place] = {}
    for record, guard, _ in recompiles[:_SHOWN]:
        for stack in (guard.stack, record.event.stack, record.event.code):
            one = facts.names.place(stack)
            if one.line and (one.file, one.line) != (place.file, place.line):
                lines.setdefault((one.file, one.line), one)
    return tuple(lines.values())[:_SHOWN]


def _unexplained(facts: Facts, limit: DynamoLimit, step: int) -> Finding:
    """A limit hit of which no recompilation was told: the recording began too late."""
    function = facts.names.text(limit.func) or "the function called here"
    place = facts.names.place(limit.stack)
    finding = facts.finding(
        "recompile",
        place,
        operation=LIMIT,
        count=1,
        counted=Known((Moment(limit.t),)),
        cost_s=0.0,
        cause=f"{function} was compiled again and again; {limit_clause(limit, step)}.",
        advice=advice(limit.guard or Guard("guard"), [], "", limited=True),
        discriminator="torch.compile limit",
    )
    return msgspec.structs.replace(finding, severity="high")
