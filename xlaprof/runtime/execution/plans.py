"""Which graph a barrier or a read needs, and the key of its program: cached at the node where the trace ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime import parity
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape.graph import Graph, extract, in_order
from xlaprof.runtime.tape.known_traces import KnownTrace
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage
from xlaprof.runtime.trace.trie import Node

from . import constants, donors, value_checks
from .program import Plan, cache

_uses = itertools.count(1)

#: marks the key of a plan whose constants cannot be inputs
_AS_OPERATIONS = -4


def use(node: Node) -> None:
    """Mark ``node`` as used now: pruning the trie keeps the most recently used."""
    node.last_used = next(_uses)


def slots_of(storages: Iterable[Storage]) -> tuple[int, ...]:
    """The slots of ``storages``, each once, in order."""
    return tuple(sorted({storage.slot for storage in storages}))


def computed(tape: Tape, slots: tuple[int, ...]) -> tuple[int, ...]:
    """Those of ``slots`` that are not inputs, so that a program has to compute them."""
    return tuple(slot for slot in slots if slot not in tape.input_at)


def is_known(tape: Tape, storages: list[Storage]) -> bool:
    """Is there a plan for a barrier that computes ``storages``?"""
    return _key(tape, storages, computed(tape, slots_of(storages)), donate=True) in tape.node.plans


def find(
    tape: Tape,
    storages: list[Storage],
    slots: tuple[int, ...],
    trigger: str,
    frames: tuple[RawFrame, ...],
    *,
    donate: bool,
) -> tuple[Plan, KnownTrace | None]:
    """The plan that computes ``slots``, those of ``storages``; the trace too if the plan is new.

    With ``donate``, inputs that an output overwrites are donated to the program, and those that the user marked.
    """
    end = tape.node
    use(end)
    at_end = _key(tape, storages, slots, donate=donate)
    plan: Plan | None = end.plans.get(at_end)
    if plan is not None and not plan.given:
        return plan, None
    alive = storages if donate else tape.live() if plan is None else []
    given = constants.find(tape, slots, alive, frames, at_barrier=donate) if plan is None else plan.given
    if given and not constants.give(tape, given, alive, at_barrier=donate):
        given, at_end = (), (*at_end, _AS_OPERATIONS)
        plan = end.plans.get(at_end)
    if plan is not None:
        return plan, None
    outs = slots if parity.strict else in_order(end, slots, tape.input_at)
    graph = extract(end, outs, tape.input_at)
    key: tuple[Any, ...] = (tape.index, graph.hash, _donatable(tape, graph) if donate else (), value_checks.enabled)
    if tape.partition is not None:
        key = (repr(tape.partition), *key[1:], tape.partition.output_shardings(tape, storages, outs))
    plan = end.plans[at_end] = Plan(key, graph, given)
    return plan, graph_diff.remember(tape, trigger, frames, end, graph, at_end, lambda: cache.peek(key))


def forget(tape: Tape, new: KnownTrace) -> None:
    """The graph of a trace that was found to be new was refused: the next time it is new again."""
    new.end.plans.pop(new.key, None)
    if tape.known and tape.known[-1] is new:
        tape.known.pop()


def _key(tape: Tape, storages: list[Storage], slots: tuple[int, ...], *, donate: bool) -> tuple[Any, ...]:
    """Key of the plan for ``slots``, of ``storages``, among those of the last node."""
    shardings = () if tape.partition is None else tape.partition.output_shardings(tape, storages, slots)
    key: tuple[Any, ...] = (*shardings, *(slots if donate else (-1, *slots)))
    if donate and (marked := donors.on_tape(tape)):
        key = (*key, marked)
    return (-2, *key) if value_checks.enabled else key  # programs that check values are others


def _donatable(tape: Tape, graph: Graph) -> tuple[int, ...]:
    """Numbers of the inputs that the user marked, or whose storage an output overwrites that lies as they do."""
    epoch, outs = tape.epoch, set(graph.outs)
    return tuple(
        i
        for i, (slot, position) in enumerate(zip(graph.inputs, graph.positions, strict=True))
        if donors.is_marked(tape.arrays[position])
        or (
            (owner := tape.owners[position]).epoch == epoch
            and owner.slot != slot
            and owner.slot in outs
            and (
                owner.sharding is None
                or owner.sharding is tape.partition.sharding_at_rest(tape.arrays[position], owner.sig)
            )
        )
    )
