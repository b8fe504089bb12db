"""Writes into a tensor of what was read from it, which XLA:CPU miscompiles.

``x[:, 0] = x[:, 0].flip(0)``, read through ``x.unsqueeze(0)``, is ``dynamic_update_slice(x, rev(x[:, :1]), 0, 0)``
behind a reshape that moves nothing. XLA:CPU (jaxlib 0.10) makes one loop of it that writes into the buffer of ``x``
while it reads there, and so reads what it has just written (docs/xla-self-writes.md has all that is known).
Such writes are lowered to a selection between the old and the new values, which is never done in place. In plain jax::

    wrong = jax.jit(lambda x: lax.dynamic_update_slice(x, lax.rev(x[:, 0:1], (0,)), (0, 0))[None])
    wrong(jnp.arange(12.0).reshape(3, 4))[0, :, 0]  # 8, 4, 8 instead of 8, 4, 0

A write whose values come from other tensors, or from the elements that it replaces, is an update in place as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .ops import is_view
from .trie import leaves

if TYPE_CHECKING:
    from .trie import Node

_SCATTER = "xlaprof.scatter:"  # the write through one view operator: (base, value, ...) -> the base
#: what is lowered to ``dynamic_update_slice``
_UPDATES = {
    f"{_SCATTER}aten.select.int",
    f"{_SCATTER}aten.slice.Tensor",
    "aten.select_scatter.default",
    "aten.slice_scatter.default",
}

#: copies, each element to its own place, which PyTorch does not count among the pointwise operators
_COPIES = {"aten.copy_.default", "aten.copy.default", "aten._to_copy.default", "aten.clone.default"}

#: where in a tensor: its slot, and the view operators from there; None: more than views lie in between
_Place = tuple[int, "tuple[Any, ...] | None"]


def self_writes(nodes: Sequence[Node]) -> set[Node]:
    """Those of ``nodes``, in recorded order, that write what comes from another place of the same tensor."""
    updates = {node for node in nodes if _name(node) in _UPDATES}
    if not updates:
        return set()
    shown = _shown(nodes)

    def place(slot: int) -> _Place:
        return shown.get(slot, (slot, ()))

    written = {place(node.args[0].slot)[0] for node in updates}
    sources: dict[int, set[_Place]] = {}  # of a slot's value, in the tensors that are written

    def sources_of(slot: int) -> set[_Place]:
        own = place(slot)
        return sources.get(slot, set()) | ({own} if own[0] in written else set())

    found = set()
    for node in nodes:
        slots = leaves(node.args, node.kwargs)[0]
        origin = place(node.slot)[0]
        if node in updates:
            base, value = slots[0], slots[-1]
            goes_to = (origin, (*(place(base)[1] or ()), _view(node)))
            if any(source[0] == origin and source != goes_to for source in sources_of(value)):
                found.add(node)
        came = set[_Place]().union(*map(sources_of, slots))
        if not _is_pointwise(node):
            came = {(slot, None) for slot, _ in came}
        for out in node.outs:
            sources[out.slot] = {source for source in came if source[0] != origin}
    return found


def _shown(nodes: Sequence[Node]) -> dict[int, _Place]:
    """Slots of views, and of what tensors are after a write -> the tensor and the views in between."""
    shown: dict[int, _Place] = {}
    for node in nodes:
        slots = leaves(node.args, node.kwargs)[0]
        if not slots:
            continue
        origin, path = shown.get(slots[0], (slots[0], ()))
        if node.op is not None and node.op.func is not None and is_view(node.op.func):
            shown[node.slot] = (origin, (*(path or ()), _view(node)))
        elif _name(node).startswith(_SCATTER) or _name(node) in _UPDATES:
            shown[node.slot] = (origin, path)
    return shown


def _name(node: Node) -> str:
    return node.op.name if node.op is not None else ""


def _view(node: Node) -> Any:
    """The view operator of a read, or of the write through it, with its arguments."""
    name = _name(node)
    return name.removeprefix(_SCATTER), node.args[2 if name.startswith(_SCATTER) else 1 :], tuple(node.kwargs.items())


def _is_pointwise(node: Node) -> bool:
    func = node.op.func if node.op is not None else None
    return func is not None and (torch.Tag.pointwise in func.tags or _name(node) in _COPIES)
