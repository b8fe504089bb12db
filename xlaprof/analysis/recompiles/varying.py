"""Which sizes of a batch vary: one for all tensors whose sizes are equal in every graph, as of rows and labels."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from xlaprof.analysis.diagnosis import Key
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, head
from xlaprof.analysis.places import short
from xlaprof.analysis.recompiles import along
from xlaprof.analysis.recompiles.group import Group, is_irregular, of_batch, rhythms
from xlaprof.analysis.recompiles.wording import is_edges, is_fresh, is_index, moved_names, operator, tensor, variable
from xlaprof.analysis.shapes import axes, dims
from xlaprof.events import Change


class Size(NamedTuple):
    """A dimension of a tensor that takes several sizes."""

    name: str  # of the tensor, in the program; "" where it is not known
    tensor: str  # the same, for people
    place: Place  # the line that made it
    axis: int
    rank: int
    sizes: tuple[int, ...]  # ascending
    read: str  # what reads it, where it has no name
    is_index: bool  # its elements are positions
    is_edges: bool  # its columns are edges of a graph
    ignored: str = ""  # of labels, the one that the loss ignores, as Python
    alike: tuple[Size, ...] = ()  # of other tensors of the batch, which have the same size in every graph

    @property
    def most(self) -> int:
        return self.sizes[-1]

    def may_be(self, other: Size) -> bool:
        """Whether one line reads both, of which one was there already: the same tensor, brought and used again."""
        return (self.read, self.axis) == (other.read, other.axis) and not (self.place.line and other.place.line)

    @property
    def text(self) -> str:
        """ "dimension 1 of ids" """
        return f"dimension {self.axis} of {self.name or self.read}"

    @property
    def together(self) -> tuple[Size, ...]:
        """It and those that have the same size."""
        return (self, *self.alike)


def varying(facts: Facts, group: Group) -> list[Size]:
    """The sizes of the tensors, each independent of the others."""
    took: dict[tuple[Key, int], dict[int, int]] = {}
    every: dict[tuple[Key, int], set[int]] = {}
    changes: dict[Key, Change] = {}
    barriers: dict[tuple[Key, int], set[int]] = {}  # whose graphs have it
    own: set[tuple[Key, int]] = set()  # of the graphs themselves, not only of what was read on the way to them
    reads = [record for record in facts.run.compiles if record.trigger == "read"]
    since = 0
    for at, extra in enumerate(group.extras):
        until = bisect_left(reads, extra.record.t, key=lambda record: record.t)
        records = (extra.record, *reads[since:until]) if of_batch(extra.change) else (extra.record,)
        since = until
        if of_batch(group.first) and not of_batch(extra.change):
            continue  # it follows
        for record in records:
            for part in record.parts:
                change = part.change
                if change != extra.change and not (of_batch(change) and of_batch(extra.change)):
                    continue
                for axis in axes(change):
                    changes.setdefault(part.key, change)
                    which, old, new = (part.key, axis), *(dims(text)[axis] for text in (change.old, change.new))
                    took.setdefault(which, {}).setdefault(at, new)
                    every.setdefault(which, set()).update((old, new))
                    barriers.setdefault(which, set()).add(extra.record.stack)
                    own |= {which} if record is extra.record else set()
    found: list[tuple[dict[int, int], set[int], list[Size]]] = []
    for which, sizes in sorted(took.items(), key=lambda one: one[0] not in own):
        change, axis = changes[which[0]], which[1]
        made, used = facts.place(change.made), facts.place(change.stack)
        name, read = variable(change, made, used), f"what {operator(change)} reads at {short(used)}"
        rank = len(dims(change.old))
        most = tuple(sorted(every[which]))
        size = Size(name, tensor(change, made, used), made, axis, rank, most, read, is_index(change), is_edges(change))
        alike = (
            one
            for seen, where, one in found  # in one graph they are equal; or they never are in one, as of two loops
            if (sizes.keys() & seen.keys() and {**sizes, **seen} == {**seen, **sizes})
            or not where & barriers[which]
            or (not sizes.keys() & seen.keys() and any(map(size.may_be, one)))
        )
        if (others := next(alike, None)) is not None:
            others += [size] if size.text not in [other.text for other in others] else []
        elif which in own:
            found.append((sizes, barriers[which], [size]))
    ignored = along.labels(facts, group)
    named = ([one._replace(ignored=ignored.get(one.name, "")) for one in _all_named(some)] for _, _, some in found)
    return [one._replace(alike=tuple(others)) for one, *others in named]


def _all_named(some: list[Size]) -> list[Size]:
    """The sizes, with the name of the one tensor that is left of those that their line brings to the device; of two
    loops' tensors of one name, which the same is due to, the first."""
    found: dict[tuple[str, int], Size] = {}
    for size in some:
        beside = [one for one in some if one.place == size.place]
        left = [one for one in moved_names(size.place.acting.code) if one not in [other.name for other in beside]]
        alone = len(left) == 1 and [one for one in beside if not one.name] == [size]
        named = size._replace(name=left[0]) if alone else size
        found.setdefault((named.name or named.read, named.axis), named)
    return list(found.values())


def made_by(facts: Facts, change: Change) -> Place:
    """The line of the collate function, or dataset, that makes a batch whose size varies; NOWHERE: not known.

    Known is what makes the batches of a loop; so the tensor has to be one of them, brought to the device in that loop.
    """
    if not of_batch(change) or is_fresh(facts.place(change.made).acting.code):
        return NOWHERE
    here = {head(loop) for loop in (facts.place(change.made), *facts.names.loops(change.made))}
    rows = axes(change) == (0,)  # the sampler decides how many there are
    made = {
        head(place): place
        for one in facts.run.batches
        if (one.collated or not rows) and (not change.made or head(facts.place(one.stack)) in here)
        for place in (facts.place(one.made),)
    }
    return next(iter(made.values())) if len(made) == 1 else NOWHERE


def last_batch(facts: Facts, group: Group, vary: list[Size]) -> Size | None:
    """The size of the batch, where the group is the last batch of a pass, which is smaller and comes more seldom.

    What else varies has become smaller by the same factor: all that a batch has of each row, as its rows' nodes.
    """
    change = group.first
    old, new = dims(change.old), dims(change.new)
    rows = min((one for one in vary if len(one.sizes) == 2 and one.axis == 0), key=lambda one: one.most, default=None)
    if rows is None or not new or new >= old or any(len(one.sizes) > 2 for one in vary):
        return None
    if any(one.sizes[0] * rows.most != one.most * rows.sizes[0] for one in vary):
        return None
    runs, smaller = facts.run.program_runs, {one.record.program for one in group.extras}
    if is_irregular(rhythms(facts, smaller)):
        return None
    seldom = max(runs.get(one, 0) for one in smaller)
    return rows if not change.against or seldom <= runs.get(change.against, 0) else None
