"""The sharding of a tensor, as far as it is known: from its annotation, its value, or the recorded operations.

:func:`constrain` records another.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from xlaprof.runtime import metrics
from xlaprof.runtime.spmd.sharding import OpSharding, ShardingType
from xlaprof.runtime.spmd.tiles import MARK
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.grow import INPUT, form_of
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage, View
from xlaprof.runtime.trace.trie import Ref, Spec


def unwrap_sharded_tensor(t: Any) -> Any:
    """The tensor that ``t`` wraps (:class:`~.sharded_tensor.XLAShardedTensor`), or ``t``."""
    return getattr(t, "global_tensor", t)


def sharding_of(tensor: torch.Tensor) -> OpSharding | None:
    """The sharding of ``tensor``: its annotation's, or its value's; ``None`` where it is not known yet."""
    storage: Storage = unwrap_sharded_tensor(tensor)._storage
    if storage.sharding is not None:
        return storage.sharding  # type: ignore[no-any-return]
    tape = storage.tape
    if tape.partition is None:
        return None
    if storage.epoch == tape.epoch and (storage.array is None or storage.slot not in tape.input_at):
        return _recorded(tape, storage.slot)
    return tape.partition.sharding_at_rest(storage.array, storage.sig)  # type: ignore[no-any-return]


def _recorded(tape: Tape, slot: int) -> OpSharding | None:
    """The sharding that the value at ``slot`` will have, as far as the recorded operations say."""
    makers = {out.slot: node for node in tape.node.path() for out in node.outs}
    annotated = {
        storage.slot: storage.sharding for storage in tape.storages if storage.epoch == tape.epoch and storage.sharding
    }
    if slot in annotated:
        return cast(OpSharding, annotated[slot])
    node = makers.get(slot)
    if node is not None and node.op is MARK:
        return cast(OpSharding, node.args[1])
    return cast(OpSharding, form_of(node).sharding) if node is not None and node.op is INPUT else None


def constrain(storage: Storage, sharding: OpSharding) -> None:
    """Record that the value of ``storage`` gets ``sharding``, which it has from then on."""
    metrics.count("XlaAnnotateCustomSharding")
    tape = storage.tape
    # An abstract tape, on which a graph of torch.compile is laid out, stands for another.
    partition = (
        next(t.partition for t in tapes.existing() if t.index == tape.index) if tape.abstract else tape.partition
    )
    with tape.lock:
        slot = tape.slot_of(storage)
        new = tape.pseudo(MARK, (MARK, slot, sharding), (Ref(slot), sharding, partition), {}, Spec(storage.sig))
        if isinstance(storage, View):  # the same value: the view's base is not written
            storage.slot, storage.epoch = new, tape.epoch
        else:
            tape.write(storage, new)
    storage.sharding = sharding


def get_sharding_spec(t: torch.Tensor) -> str:
    """XLA's text of ``t``'s sharding: ``{devices=[2,2]0,1,2,3}``, ``{replicated}``; empty where it is not known yet."""
    sharding = sharding_of(t)
    return "" if sharding is None else sharding.text


def get_sharding_type(t: torch.Tensor) -> ShardingType | None:
    """The type of ``t``'s sharding: replicated, tiled, or in tiles that are replicated (partial)."""
    sharding = sharding_of(t)
    return None if sharding is None else sharding.type
