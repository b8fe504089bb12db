"""Operations that work along a dimension which has another size in a new graph: padding would change their results."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from xlaprof.runtime.tape.graph import reads
from xlaprof.runtime.trace.trie import Const

if TYPE_CHECKING:
    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.trace.trie import Node

_LISTED = 8  # of one diff
_ACROSS = ("linalg_", "cholesky", "triangular_solve", "inverse", "det", "logdet")  # each row of a matrix counts in all
_MOVING = ("slice", "select", "index_select", "gather", "squeeze", "unsqueeze", "unbind", "cat", "stack", "transpose")


def along(old: Graph, new: Graph, slots: dict[int, int]) -> list[Node]:
    """The first at each line, without those that only move elements. ``slots``: values of the old graph -> of the new.

    The dimension ends there, as in a sum or a top-k, the operation is told to work along it, as a softmax is, or it
    factorizes a matrix.
    """
    before, now = _shapes(old), _shapes(new)
    other = {slot: before[was] for was, slot in slots.items() if was in before and before[was] != now.get(slot)}
    matched = set(slots.values())
    found: dict[tuple[str, Any], Node] = {}
    for node in new.nodes:
        if node.role or node.op is None or node.op.aten.removeprefix("aten::") in _MOVING or len(found) == _LISTED:
            continue
        changed = [(other[slot], now[slot]) for slot in reads(node) if slot in other and slot in now]
        if _picks(node):  # along classes it moves what its labels choose, as a gather does
            changed = [(was, is_now) for was, is_now in changed if _each_row(was) != _each_row(is_now)]
        results = [out.slot for out in node.outs]
        ends = bool(results) and all(slot in matched and slot not in other for slot in results)
        across = node.op.aten.removeprefix("aten::").startswith(_ACROSS)
        if any(ends or across or _is_told(node, was, is_now) for was, is_now in changed):
            found.setdefault((node.op.aten, node.frames), node)
    return list(found.values())


def _shapes(graph: Graph) -> dict[int, tuple[int, ...]]:
    inputs = ((slot, sig.shape) for slot, sig in zip(graph.inputs, graph.sigs, strict=True))
    return dict(chain(inputs, ((out.slot, out.size) for node in graph.nodes for out in node.outs)))


def _picks(node: Node) -> bool:
    """Whether it takes one number of each row of scores."""
    return node.op is not None and node.op.aten.startswith("aten::nll_loss")


def _each_row(scores: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes without that of the classes."""
    return scores[: min(1, len(scores) - 1)] + scores[2:]


def _is_told(node: Node, was: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether the argument ``dim`` names a dimension of another size."""
    given = {**dict(zip(getattr(node.op, "names", ()), node.args, strict=False)), **node.kwargs}
    dim = given.get("dim")
    dim = dim.value if type(dim) is Const else dim
    if not isinstance(dim, int) or len(was) != len(now) or not -len(now) <= dim < len(now):
        return False
    return was[dim] != now[dim]
