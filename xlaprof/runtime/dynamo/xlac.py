"""Compiled graphs under the names of PyTorch/XLA's C++ module, ``torch_xla._XLAC``, and the parts of its Dynamo bridge.

PyTorch/XLA's bridge is Python over these functions: hash a pending graph, find its inputs, run it again on others. Ours
needs none of these functions; scripts and tests that are built on them do.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_structure

from xlaprof.runtime.tape import randomness, tapes
from xlaprof.runtime.tape.graph import Graph, extract, reads
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.storage import Storage
from xlaprof.runtime.trace.tensor import XLATensor, handle
from xlaprof.runtime.transfer import host

from . import donation
from .executable import Executable, executable_for
from .sketch import COMPUTED, Layout, Output

#: PyTorch/XLA's id of the random seed among a graph's inputs; seeds are no inputs of ours
SEED_ID = -127389

_KEPT = 256


class _Pending(NamedTuple):
    """A pending graph and its inputs."""

    tape: Tape
    graph: Graph
    floats: tuple[float, ...]
    ints: tuple[int, ...]
    order: tuple[int, ...]  # its inputs in PyTorch/XLA's order
    owners: tuple[Storage, ...]  # of the inputs, in that order


_hashed: OrderedDict[bytes, _Pending] = OrderedDict()
_executables: OrderedDict[bytes, Executable] = OrderedDict()


def _pending(tensors: Sequence[torch.Tensor]) -> _Pending | None:
    """The pending graph of ``tensors``; ``None`` where nothing is pending."""
    storages = [tensor._storage for tensor in tensors if isinstance(tensor, XLATensor)]
    if not storages:
        return None
    tape = storages[0].tape
    with tape.lock:
        slots = {tape.slot_of(storage) for storage in storages}
        outs = tuple(sorted(slot for slot in slots if slot not in tape.input_at))
        graph = extract(tape.node, outs, tape.input_at)
        order = _peer_order(graph)
        return _Pending(
            tape,
            graph,
            tuple(tape.floats[p.index] for p in graph.floats),
            tuple(tape.ints[p.index] for p in graph.ints),
            order,
            tuple(tape.owners[graph.positions[i]] for i in order),
        )


def _peer_order(graph: Graph) -> tuple[int, ...]:
    """The inputs in PyTorch/XLA's order: post-order from the results, last operands first."""
    made = {out.slot: node for node in graph.nodes for out in node.outs}
    number = {slot: i for i, slot in enumerate(graph.inputs)}
    found: dict[int, None] = {}
    seen: set[int] = set()
    todo = list(reversed(graph.outs))
    while todo:
        slot = todo.pop()
        if slot in seen:
            continue
        seen.add(slot)
        if slot in number:
            found[number[slot]] = None
        elif slot in made:
            todo.extend(reversed(reads(made[slot])))
    return tuple(found)


def _get_graph_hash(tensors: Sequence[torch.Tensor]) -> bytes:
    """The hash of the graph that ``tensors`` need: equal for graphs that one program runs."""
    found = _pending(tensors)
    if found is None:
        return b""
    digest = bytes.fromhex(found.graph.hash)
    if donation.aliasing():
        marked = [i for i, storage in enumerate(found.owners) if donation.is_marked(handle(storage))]
        if marked:
            digest = hashlib.sha256(digest + repr(marked).encode()).digest()[:16]
    _hashed[digest] = found
    if len(_hashed) > _KEPT:
        _hashed.popitem(last=False)
    return digest


def _run_cached_graph(graph_hash: bytes, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of the graph that was hashed, over other ``inputs`` (in PyTorch/XLA's order; host tensors are sent).

    Raises ``RuntimeError`` for an unknown hash.
    """
    found = _hashed.get(graph_hash)
    if found is None:
        raise RuntimeError(
            f"Failed to get computation by hash {graph_hash.hex()}. Maybe the entry get kicked out of the LRU cache"
        )
    if len(inputs) != len(found.order):
        raise RuntimeError(f"the graph {graph_hash.hex()} has {len(found.order)} inputs, {len(inputs)} were given")
    args = [t if type(t) is XLATensor else host.send(found.tape, [t.detach()])[0] for t in inputs]
    executable = _executables.get(graph_hash)
    if executable is None:
        places = {i: place for place, i in enumerate(found.order)}
        n = len(found.graph.outs)
        layout = Layout(
            graph=found.graph,
            tape=found.tape,
            sources=tuple(places[i] for i in range(len(found.order))),
            captured=(),
            uploads=(),
            writes=(),
            kept=frozenset(),
            donors=frozenset(),
            outputs=tuple(Output(COMPUTED, i) for i in range(n)),
            spec=tree_structure([0] * n),
            floats=found.floats,
            ints=found.ints,
            float_args=(),
        )
        executable = _executables[graph_hash] = executable_for(found.tape, layout, args, None)
        if len(_executables) > _KEPT:
            _executables.popitem(last=False)
    results: list[torch.Tensor] = executable(args)
    return results


def _get_tensors_xla_device_data_node(tensors: Sequence[torch.Tensor]) -> tuple[list[int], list[torch.Tensor]]:
    """The tensors that the pending graph of ``tensors`` reads: their ids, and a handle on each."""
    found = _pending(tensors)
    owners = found.owners if found is not None else ()
    return [id(storage) for storage in owners], [handle(storage) for storage in owners]


def _get_tensors_handle(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Identities of the buffers behind ``tensors``."""
    return [id(tensor._storage.array) for tensor in tensors if isinstance(tensor, XLATensor)]


def _unique_id_for_ir_and_data(tensor: torch.Tensor) -> int:
    """A number that tensors with the same value, pending or not, share."""
    if not isinstance(tensor, XLATensor):
        return id(tensor)
    storage = tensor._storage
    pending = storage.epoch == storage.tape.epoch and storage.slot not in storage.tape.input_at
    return -1 - storage.slot if pending else id(storage.array)


def _clear_pending_irs(device: str) -> None:
    """Drop the pending operations of ``device``; tensors that depend on them keep their previous values."""
    tape = tapes.of_device(device)
    with tape.lock:
        tape.trim_views()
        tape.reset()


def _get_seed_info_id() -> int:
    """The id that stands for the random seed among a graph's inputs."""
    return SEED_ID


def _get_base_seed_as_tensor(device: str) -> torch.Tensor:
    """The seed of ``device``, as a tensor there."""
    tape = tapes.of_device(device)
    seed = randomness.initial_seed(tape.index)
    return host.send(tape, [torch.tensor(seed - (1 << 64) if seed >= 1 << 63 else seed)])[0]


# -- the bridge's parts --------------------------------------------------------------------------------


class GraphInputMatcher:
    """Maps the arguments of a call to the inputs of a graph traced before.

    Inputs that were no arguments when the graph was traced (weights, constants) are the same in every call.
    """

    def __init__(
        self,
        tensor_id_to_arg_idx: dict[int, int],
        graph_input_tensor_ids: list[int],
        graph_input_xla_values: list[torch.Tensor],
        xla_args_tensor_id: set[int] | Sequence[int] | None = None,
    ) -> None:
        arguments = set(tensor_id_to_arg_idx if xla_args_tensor_id is None else xla_args_tensor_id)
        self.tensor_id_to_arg_idx = tensor_id_to_arg_idx
        self.graph_input_tensor_ids = graph_input_tensor_ids
        self.graph_input_xla_values = [
            None if tensor_id in arguments else value
            for tensor_id, value in zip(graph_input_tensor_ids, graph_input_xla_values, strict=True)
        ]
        self.seed_info_id = SEED_ID
        self.arg_idxs = [tensor_id_to_arg_idx.get(tensor_id) for tensor_id in graph_input_tensor_ids]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        return [
            value if index is None else args[index]
            for index, value in zip(self.arg_idxs, self.graph_input_xla_values, strict=True)
        ]


class NoneRemover:
    """Removes each ``None`` from a list or tuple, and puts it back where it was."""

    def __init__(self) -> None:
        self.none_poslist: list[int] = []

    def remove_nones(self, value_list: Any) -> Any:
        """``value_list`` without ``None``: a list is changed, a tuple made anew."""
        self.none_poslist = [i for i, value in enumerate(value_list) if value is None]
        kept = [value for value in value_list if value is not None]
        if isinstance(value_list, tuple):
            return tuple(kept)
        value_list[:] = kept
        return value_list

    def add_nones(self, value_list: Any) -> Any:
        """``value_list`` with the ``None`` s that were removed."""
        filled = list(value_list)
        for position in self.none_poslist:
            filled.insert(position, None)
        if isinstance(value_list, tuple):
            return tuple(filled)
        value_list[:] = filled
        return value_list
