"""recompile: a graph compiled again although its code had run before.

Not a finding is warm-up: the first compile at a barrier (a new phase of the program, such as evaluation, has a
barrier of its own), and a first graph that is replaced within the first steps and never comes back (an optimizer
that made its state). A read that needs a graph of its own in a loop that has barriers is one, from the first.
Cost: the compile time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from xlaprof.analysis.facts import Facts, seconds, times
from xlaprof.analysis.model import Finding, FromTo, Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.sized import INSTEAD, OTHERWISE
from xlaprof.analysis.tallies import CompileRecord
from xlaprof.events import Change

EARLY = 3  # visits of a barrier in which its first graph may still be replaced
_SHOWN = 8  # changes listed as evidence

_SETTLING = frozenset({"operation", "inputs", "outputs", "aliasing", "sharding"})
_SIZES = re.compile(r"\[([\d, ]*)\]")


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and subject of change, with all the compiles it caused."""
    groups: dict[tuple[str, int, str, str], list[tuple[CompileRecord, Change, Place]]] = {}
    for record in facts.run.compiles:
        change = _defect(facts, record)
        if change is None:
            continue
        place = facts.names.place(change.stack or record.stack)
        what = "shape" if change.what in ("shape", "dtype") else change.what
        groups.setdefault((place.file, place.line, what, change.subject), []).append((record, change, place))
    for (_, _, what, subject), compiles in groups.items():
        yield _finding(facts, what, subject, compiles)


def _defect(facts: Facts, record: CompileRecord) -> Change | None:
    """What changed, if this compile should not have been."""
    if record.trigger == "read" and _cuts_a_loop(facts, record):
        return Change(
            "operation", "the graph up to the barrier", "the graph up to this read", "read before the barrier"
        )
    change = record.change
    if change is None:
        return None
    if change.what == "evicted":
        return change
    if not record.nth:
        return None  # the first graph of this barrier
    if change.what in _SETTLING and record.visits <= EARLY and not _comes_back(facts, record):
        return None
    return change


def _cuts_a_loop(facts: Facts, record: CompileRecord) -> bool:
    """This read is repeated in a loop whose graph a barrier goes on with, so its own graph is one too many."""
    repeated = sum(
        tally.in_steps if facts.named_steps else tally.looped
        for (stack, _), tally in facts.run.reads.items()
        if stack == record.stack
    )
    return not record.nth and repeated >= 3 and any(site.executed >= 3 for site in facts.run.sites.values())


def _comes_back(facts: Facts, record: CompileRecord) -> bool:
    """A graph that this one replaced ran again later: the program goes back and forth between them."""
    programs = facts.run.programs
    return any(programs.get(program, 0) > record.t + record.dur for program in record.before)


def _finding(facts: Facts, what: str, subject: str, compiles: list[tuple[CompileRecord, Change, Place]]) -> Finding:
    first, change, place = compiles[0]
    cost = sum(record.dur for record, _, _ in compiles) / 1e9
    count = len(compiles)
    changes = list(dict.fromkeys((one.old, one.new) for _, one, _ in compiles))
    evidence = [
        f"{_when(record)}: {seconds(record.dur / 1e9)}, {one.old} -> {one.new}" for record, one, _ in compiles[:_SHOWN]
    ]
    if count > _SHOWN:
        evidence.append(f"and {count - _SHOWN} more")
    again = f"compiled again {times(count)}, {seconds(cost)} in all"
    return facts.finding(
        "recompile",
        place,
        operation=_operation(change),
        count=count,
        cost_s=cost,
        cause=f"{_cause(what, subject, change, len(changes), facts.names)}: {again}.",
        advice=_advice(what, change, changes, first, facts),
        change=FromTo(what=change.what, old=change.old, new=change.new),
        evidence=tuple(evidence),
        discriminator=f"{what} {subject}",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _operation(change: Change) -> str:
    found = re.search(r"aten::[\w.]+", change.subject) or re.search(r"aten::[\w.]+", change.new)
    return found[0] if found else ""


def _when(record: CompileRecord) -> str:
    return f"step {record.step}" if record.step >= 0 else "before the first step"


def _cause(what: str, subject: str, change: Change, kinds: int, names: Names) -> str:
    more = f" (and {kinds - 1} more such changes)" if kinds > 1 else ""
    went = f"from {change.old} to {change.new}{more}"
    if change.subject == "read before the barrier":
        return "The read comes before the barrier, so it needs a graph of its own"
    if what == "shape":
        noun = f"the {subject}" if subject.startswith("input of") else subject or "an input"
        return f"The {change.what} of {noun} changed {went}"
    if what == "size":
        return f"The size of the {subject}, which values decide, changed {went}"
    if what == "scalar":
        return f"{_capital(subject) or 'A Python number'} went {went}, and 0, 1 and -1 are part of a graph"
    if what == "argument":
        return f"{_capital(subject) or 'An argument'} changed {went}, and arguments are part of a graph"
    if what == "operation":
        expected = names.place(change.expected)
        where = f" (line {expected.line})" if expected.line and expected != names.place(change.stack) else ""
        return f"Another path was taken: {change.new} came where {change.old}{where} had been recorded{more}"
    if what == "evicted":
        return "The compiled graph had been dropped from a full cache and was needed again"
    nouns = {
        "outputs": "The set of tensors alive at the barrier",
        "inputs": "The set of inputs of the graph",
        "aliasing": "Which inputs of the graph are the same tensor",
        "sharding": "How a tensor lies over the devices",
    }
    detail = f" ({subject})" if subject else ""
    return f"{nouns.get(what, f'The graph ({what})')} changed {went}{detail}"


def _advice(what: str, change: Change, changes: list[tuple[str, str]], first: CompileRecord, facts: Facts) -> str:
    if change.subject == "read before the barrier":
        return "Read the value after the barrier, or keep it on the device and read it at the end."
    if what == "shape":
        return _shape_advice(change, changes)
    if what == "size":
        return f"{INSTEAD.get(_operation(change), OTHERWISE)}."
    if what == "scalar":
        return (
            "Pass the number as a 1-element tensor on the device, or keep it off exactly 0, 1 and -1 "
            "(XLA_NO_SPECIAL_SCALARS=1 makes every number an input)."
        )
    if what == "argument":
        return "Keep the argument constant, or compute with a tensor on the device instead of a Python number."
    if what == "operation":
        barrier = facts.names.place(first.stack)
        where = f" at line {barrier.line}" if barrier.line else ""
        return (
            f"Take the same path in every step (torch.where instead of if), or move the barrier{where} so that "
            "every graph holds the same work."
        )
    if what == "evicted":
        return "Raise the limit of the compile cache, or let fewer different graphs arise."
    if what == "outputs":
        return "Let go of results of earlier steps before the barrier, or keep the same ones alive at every barrier."
    if what == "sharding":
        return "Call mark_sharding on the tensor once, before the first step, and give every batch the same sharding."
    return "Make the tensors that a step starts from the same in every step, for instance by one warm-up step."


def _shape_advice(change: Change, changes: list[tuple[str, str]]) -> str:
    if change.what == "dtype":
        return f"Convert the input to one dtype before the step ({_dtype(change.old)} came first)."
    sizes = [_sizes(change.old), *(_sizes(new) for _, new in changes)]
    old, new = sizes[0], sizes[1]
    if old is None or new is None or len(old) != len(new):
        return "Give this input the same shape in every step."
    axes = [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if not axes:
        return "Give this input the same shape in every step."
    axis = axes[0]
    along = [size[axis] for size in sizes if size is not None and len(size) > axis]
    if len(along) > 2 and all(b > a for a, b in pairwise(along)):
        return (
            f"Dimension {axis} grows from step to step: allocate it once at its largest size ({max(along)} so far) "
            "and write into it at a position held in a tensor."
        )
    if len(set(along)) <= 2 and axis == 0 and new[0] < old[0]:
        return f"Pad the last batch to {old[0]} or pass drop_last=True to the DataLoader."
    if len(set(along)) <= 2:
        return f"Pad dimension {axis} to {max(along)} in every step."
    edges = _buckets(along)
    return (
        f"Dimension {axis} took {len(set(along))} sizes from {min(along)} to {max(along)}: pad it to "
        f"{', '.join(map(str, edges))}, or mask positions instead of selecting them."
    )


def _dtype(text: str) -> str:
    return text.partition("[")[0] or text


def _sizes(text: str) -> tuple[int, ...] | None:
    found = _SIZES.search(text)
    if found is None:
        return None
    return tuple(int(part) for part in found[1].replace(" ", "").split(",") if part)


def _buckets(sizes: list[int]) -> list[int]:
    """At most four sizes to pad to: powers of two up to the one that holds the largest."""
    edges: list[int] = []
    edge = 1 << (max(sizes) - 1).bit_length()
    while len(edges) < 4 and edge >= min(sizes):
        edges.append(edge)
        edge //= 2
    return sorted(edges) or [max(sizes)]
