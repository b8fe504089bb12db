"""The devices of a program with collectives: one of each rank that takes part.

Each rank compiles the program and launches its own part; every value belongs to one rank. To jax the values are global
arrays that claim to be replicated, but differ: inside a ``shard_map`` each device sees its own, in the shape that the
tape knows (0-dim too). So nothing is reshaped, moved or checked, and buffers are donated as in any program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlaprof.runtime.distributed.groups import Groups, from_text
from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.tape.graph import Graph

from . import agreement

#: name of the mesh's one axis
AXIS = "ranks"


class SharedProgram:
    """The program of several ranks that ``graph``, which has collectives, becomes on devices like ``device``.

    ``agreed``: the ranks agree on it first, to run it (:func:`.agreement.agree`); else it is only inspected.
    """

    def __init__(self, graph: Graph, device: jax.Device, *, agreed: bool = True) -> None:
        collectives = [node for node in graph.nodes if getattr(node.op, "collective", False)]
        self.ranks = members({from_text(node.args[-1]) for node in collectives})
        self.sharding = _sharding(self.ranks, device)
        self._program = agreement.agree(graph, self.ranks) if agreed else None

    def on_all_ranks(self, trace: Callable[..., Any]) -> Callable[..., Any]:
        """``trace`` as one program in which every rank computes its part."""

        def part(*args: Any) -> Any:
            tracing = Tracing(self.ranks, self._program is not None and self._program.varies)
            token = _tracing.set(tracing)
            try:
                results = trace(*args)
            finally:
                _tracing.reset(token)
            return results, tracing.witness

        mesh, replicated = self.sharding.mesh, PartitionSpec()
        spread = jax.shard_map(part, mesh=mesh, in_specs=replicated, out_specs=replicated, check_vma=False)
        spread.__name__ = spread.__qualname__ = trace.__name__
        return spread

    def bind(self, compiled: Any) -> RankProgram:
        """The compiled program as a function of this rank's arrays."""
        return RankProgram(compiled, self.sharding, self._program)


class RankProgram:
    """A compiled program of several ranks, called with this rank's arrays."""

    def __init__(self, compiled: Any, sharding: NamedSharding, program: agreement.Program | None) -> None:
        self._compiled = compiled
        self._sharding = sharding
        self._program = program
        self.memory_analysis = compiled.memory_analysis
        self.as_text = compiled.as_text

    def __call__(self, *arrays: Any) -> list[Any]:
        if self._program is not None:
            self._program.launching()
        sharding = self._sharding
        results, _ = self._compiled(
            *[
                tuple([_as_global(one, sharding) for one in array])
                if type(array) is tuple
                else _as_global(array, sharding)
                for array in arrays
            ]
        )
        return [_as_local(result) for result in results]


#: id of one of this rank's arrays -> a weak reference to it, and the global array it is part of: one step's results are
#: the next one's inputs
_global: dict[int, tuple[Any, Any]] = {}


def _as_global(array: Any, sharding: NamedSharding) -> Any:
    known = _global.get(id(array))
    if known is not None and known[1].sharding is sharding:
        return known[1]
    whole = jax.make_array_from_single_device_arrays(array.shape, sharding, [array])
    _remember(array, whole)
    return whole


def _as_local(whole: Any) -> Any:
    array = whole.addressable_data(0)
    _remember(array, whole)
    return array


def _remember(array: Any, whole: Any) -> None:
    key = id(array)
    known = _global  # at exit the module loses the name
    known[key] = (weakref.ref(array, lambda _: known.pop(key, None)), whole)


# -- which placement ----------------------------------------------------------------------------------


def members(groups: set[Groups]) -> tuple[int, ...]:
    """The ranks a program with collectives over ``groups`` needs: one group's where that is the only one."""
    size = world.world_size()
    if len(groups) == 1:
        (only,) = groups
        if only and sum(map(len, only)) < size:
            return tuple(sorted(rank for group in only for rank in group))
    return tuple(range(size))


@cache
def _sharding(ranks: tuple[int, ...], device: jax.Device) -> NamedSharding:
    """The sharding by which each of ``ranks`` has its own value, on its device in the place of ``device``."""
    by_rank: dict[int, list[jax.Device]] = {}
    for other in sorted(jax.devices(device.platform), key=lambda d: d.id):
        by_rank.setdefault(other.process_index, []).append(other)
    place = by_rank[device.process_index].index(device)
    return NamedSharding(Mesh(np.array([by_rank[rank][place] for rank in ranks]), (AXIS,)), PartitionSpec())


# -- while a program is traced ------------------------------------------------------------------------


class Tracing:
    """A program that is being traced.

    On each rank XLA has to keep every collective, in the same order, whatever it derives about the numbers: an input
    that is constant here may not be on another rank. So barriers hide the inputs from it, and part of each output goes
    into the ``witness``, a result of the program. Where the ranks' programs vary, each collective also needs a zero
    computed from the witness, so that none moves before another.
    """

    def __init__(self, ranks: tuple[int, ...], varies: bool) -> None:
        self.ranks = ranks
        self.varies = varies
        self.witness: Any = jnp.zeros((), jnp.uint32)


_tracing: ContextVar[Tracing] = ContextVar("tracing")


def current() -> Tracing:
    """The program that is traced now."""
    return _tracing.get()


def axis_groups(groups: Groups, *, equal: bool = False) -> list[list[int]] | None:
    """``groups`` as positions on the mesh, ``None`` for one group of all.

    Ranks in no group are put into further ones, which do not matter: those ranks run programs of their own. With
    ``equal`` all groups are of one size.
    """
    ranks = current().ranks
    if not groups:
        return None
    positions = [[ranks.index(rank) for rank in group] for group in groups]
    named = {place for group in positions for place in group}
    others = [place for place in range(len(ranks)) if place not in named]
    size = len(positions[0]) if equal else 1
    if len(others) % size:
        raise NotImplementedError(
            f"a group of {size} ranks among {len(ranks)} next to other collectives: call sync() between them, "
            "or name groups that take in all ranks"
        )
    positions += [others[i : i + size] for i in range(0, len(others), size)]
    return None if positions == [list(range(len(ranks)))] else positions


def position(groups: Groups) -> Any:
    """This rank's index in its group: computed when the program runs, so that all ranks' programs are the same."""
    ranks = current().ranks
    places = [next((group.index(rank) for group in groups if rank in group), i) for i, rank in enumerate(ranks)]
    return jnp.asarray(places)[lax.axis_index(AXIS)]
