"""Which sizes of a batch vary: one for all tensors whose sizes are equal in every graph, as of rows and labels."""

from __future__ import annotations

from typing import NamedTuple

from xlaprof.analysis.diagnosis import Key
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.recompiles.extra import Group, of_batch
from xlaprof.analysis.recompiles.shapes import axes, dims
from xlaprof.analysis.recompiles.wording import tensor, variable
from xlaprof.events import Change


class Size(NamedTuple):
    """A dimension of a tensor that takes several sizes."""

    name: str  # of the tensor, in the program; "" where it is not known
    tensor: str  # the same, for people
    place: Place  # the line that made it
    axis: int
    rank: int
    most: int


def varying(facts: Facts, group: Group) -> list[Size]:
    """The sizes of the tensors, each independent of the others."""
    took: dict[tuple[Key, int], dict[int, tuple[int, int]]] = {}
    changes: dict[Key, Change] = {}
    for at, extra in enumerate(group.extras):
        for part in extra.record.parts:
            change = part.change
            if change != extra.change and not (of_batch(change) and of_batch(extra.change)):
                continue
            for axis in axes(change):
                changes.setdefault(part.key, change)
                old, new = ((dims(text) or ())[axis] for text in (change.old, change.new))
                took.setdefault((part.key, axis), {})[at] = old, new
    found: list[Size] = []
    seen: list[dict[int, tuple[int, int]]] = []
    for (key, axis), sizes in took.items():
        if any(sizes.keys() & one.keys() and {**sizes, **one} == {**one, **sizes} for one in seen):
            continue
        seen.append(sizes)
        change = changes[key]
        made, used = facts.names.place(change.made), facts.names.place(change.stack)
        most = max(size for pair in sizes.values() for size in pair)
        name, text = variable(change, made, used), tensor(change, made, used)
        found.append(Size(name, text, made, axis, len(dims(change.old) or ()), most))
    return found
