"""Sizes that arrays took, in calls or operations that JAX made programs for."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Collection
from operator import ne

from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.principles import HABIT, NAMED, NEARLY_ALL
from xlaprof.analysis.shapes import dims
from xlaprof.events import ArgumentChange


def sizes_of(change: ArgumentChange) -> list[int]:
    shapes = (dims(text) for text in (change.old, change.new))
    return [shape[change.dim] for shape in shapes if 0 <= change.dim < len(shape)]


def last_batch(changes: list[ArgumentChange]) -> int:
    """The size of whole batches, where the only other one is a smaller one; else 0."""
    sizes = [sizes_of(change) for change in changes]
    seen = {size for pair in sizes for size in pair}
    smaller = all(len(pair) == 2 and pair[1] < pair[0] for pair in sizes)
    return max(seen) if changes[0].dim == 0 and len(seen) == 2 and smaller else 0


def other_sizes(change: ArgumentChange) -> list[int]:
    """The sizes of the other dimensions."""
    return [size for at, size in enumerate(dims(change.new)) if at != change.dim]


def changed_dims(change: ArgumentChange) -> int:
    """In how many dimensions two shapes of one rank differ."""
    return sum(map(ne, dims(change.old), dims(change.new)))


def changed_sizes(change: ArgumentChange) -> set[tuple[int, int]]:
    """Sizes before and after, of all dimensions that differ: one, where the same size stands in several."""
    return {pair for pair in zip(dims(change.old), dims(change.new), strict=False) if ne(*pair)}


def grows(changes: list[ArgumentChange]) -> bool:
    """Whether each size is larger than the one before, by as much each time: however round, nobody chose them."""
    sizes = [pair for change in changes if len(pair := sizes_of(change)) == 2]
    return len(sizes) >= HABIT and all(new - old == sizes[0][1] - sizes[0][0] > 0 for old, new in sizes)


def one_or_few(seen: Collection[int]) -> str:
    """The largest size that came; or each twice the one before, where sizes lie further apart."""
    if not seen:
        return "one size, or to a few"
    one = f"one size ({max(seen)} was the largest so far)"
    if max(seen) <= 2 * min(seen):
        return one
    least, most = (size.bit_length() if size & (size - 1) else size.bit_length() - 1 for size in (min(seen), max(seen)))
    few = [1 << at for at in range(max(least, most - NAMED + 1), most + 1)]
    return f"{one}, or to a few (buckets: {', '.join(map(str, few))})"


def sizes_in_turn(group: list[JitRecord]) -> set[tuple[int, ...]]:
    """The size before and after, of each program that another size of an argument needs."""
    changes = (record.event.changes[0] for record in group)
    return {tuple(sizes) for change in changes if change.kind == "shape" and (sizes := sizes_of(change))}


def have_turns(lead: list[JitRecord], group: list[JitRecord]) -> bool:
    """Whether one of the group was made in nearly each turn in which one of the lead was, and never two."""
    turns = [one.event.t for one in lead]
    own = Counter(bisect(turns, one.event.t) for one in group)
    return len(lead) >= HABIT and len(own) >= NEARLY_ALL * len(turns) and set(own.values()) == {1}


def sizes_along(group: list[JitRecord]) -> set[int]:
    """All sizes that the dimension took which changes."""
    return {size for record in group for size in sizes_of(record.event.changes[0])}
