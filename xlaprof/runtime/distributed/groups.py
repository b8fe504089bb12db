"""Groups of ranks that take part in a collective together.

As everywhere in PyTorch/XLA, a list of lists of ranks, ``[[0, 1], [2, 3]]``; none means one group of all. On the tape
they are tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .job import world

Groups = tuple[tuple[int, ...], ...]


def normalized(groups: Iterable[Iterable[int]] | None) -> Groups:
    """``groups`` as the tape has them: ``()`` for one group of all.

    Raises ``ValueError`` for ranks out of range or in two groups, and where this rank is in none.
    """
    given = tuple(tuple(int(rank) for rank in group) for group in groups or ())
    size, own = world.world_size(), world.global_ordinal()
    if not given or given == (tuple(range(size)),):
        return ()
    seen: set[int] = set()
    for rank in (rank for group in given for rank in group):
        if not 0 <= rank < size:
            raise ValueError(f"groups={_listed(given)} has rank {rank}, of a world of {size} (ranks 0 to {size - 1})")
        if rank in seen:
            raise ValueError(f"groups={_listed(given)} has rank {rank} twice")
        seen.add(rank)
    if own not in seen:
        raise ValueError(
            f"rank {own} is in none of groups={_listed(given)}: only their members may call the collective"
        )
    return given


def shards(groups: Groups) -> int:
    """How many ranks take part in a collective. Raises ``AssertionError`` where groups differ in size."""
    if not groups:
        return world.world_size()
    assert all(len(group) == len(groups[0]) for group in groups), (
        "Replica groups must have the same number of replicas/shards."
    )
    return len(groups[0])


def to_text(groups: Groups) -> str:
    """``"0,1;2,3"``, for operators' schemas, which hold no nested tuples."""
    return ";".join(",".join(map(str, group)) for group in groups)


def from_text(text: str) -> Groups:
    """The inverse of :func:`to_text`."""
    return tuple(tuple(int(rank) for rank in group.split(",")) for group in text.split(";")) if text else ()


def _listed(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(group) for group in groups]
