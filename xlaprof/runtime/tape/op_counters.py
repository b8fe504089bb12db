"""Counts recorded operations (``xla::op``), and tensors made and destroyed, from the trie.

Recording counts nothing. When a trace ends, only its last node is counted, by one lookup. The operations on the path to
that node are added up when counters are read, or when many different traces have ended.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from xlaprof.runtime import metrics
from xlaprof.runtime.trace.ops import is_view

if TYPE_CHECKING:
    from xlaprof.runtime.trace.trie import Node

#: different traces that are kept before their operations are added up
_KEPT = 64

#: operators that functionalization keeps in place in PyTorch/XLA
_WRITTEN_IN_PLACE = frozenset(
    {"fill_", "zero_", "uniform_", "normal_", "random_", "exponential_", "index_fill_", "put_", "resize_", "set_"}
)
#: operators that are fills of new memory in PyTorch/XLA
_FILLED = {
    **dict.fromkeys(("ones", "ones_like", "new_ones", "full_like", "new_full", "fill"), "fill_"),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), "zero_"),
    **dict.fromkeys(("rand", "rand_like", "uniform"), "uniform_"),
    **dict.fromkeys(("randn", "randn_like"), "normal_"),
    **dict.fromkeys(("randint", "randint_like"), "random_"),
}
#: operators that PyTorch/XLA registers, and counts, with symbolic sizes
_SYMBOLIC = frozenset({"view_copy", "expand_copy", "narrow_copy", "select_backward", "diagonal_backward", "embedding"})

#: operators that PyTorch decomposes for us, but not for PyTorch/XLA
_COMPOSED = {
    "_native_batch_norm_legit_functional": "native_batch_norm",
    "_native_batch_norm_legit": "native_batch_norm",
}

#: (last node, operations already counted, tensors alive at the end) -> number of such traces
_ended: dict[tuple[Node, int, int | Node], int] = {}
_lock = threading.Lock()
_names: dict[Any, str] = {}


def ended(node: Node, counted: int, held: int | Node) -> None:
    """Note the end of a trace at ``node``: ``counted`` operations are counted already, ``held`` tensors live on.

    Where ``held`` is a node of the trace, the trace goes on from there.
    """
    trace = (node, counted, held)
    with _lock:
        _ended[trace] = _ended.get(trace, 0) + 1
        full = len(_ended) > _KEPT
    if full:
        add_up()


def recorded(last: Node, counted: int = 0, times: int = 1) -> None:
    """Count the operations on the path to ``last``, except the first ``counted``, ``times`` times."""
    seen: Counter[str] = Counter()
    _count(last, counted, times, seen)
    _report(seen)


def add_up() -> None:
    """Count the operations of the traces that have ended."""
    with _lock:
        traces = list(_ended.items())
        _ended.clear()
    seen: Counter[str] = Counter()
    for (last, counted, held), times in traces:
        _count(last, counted, times, seen)
        lives = held if isinstance(held, int) else _count(held, 0, 1, Counter())
        seen["DestroyXlaTensor"] += times * max(_count(last, 0, 1, Counter()) - lives, 0)
    _report(seen)


def _report(seen: Counter[str]) -> None:
    recorded = 0
    for name, n in seen.items():
        if n:
            metrics.count(name, n)
            recorded += n if name.startswith("xla::") else 0
    if recorded:
        metrics.begin("LazyTracing", recorded)  # :mod:`.grow` has added the time of new ones


def _count(last: Node, counted: int, times: int, seen: Counter[str]) -> int:
    """Add the operations on the path to ``last``, except the first ``counted``, to ``seen``; return tensors made."""
    made = 0
    for node in last.path()[counted:]:
        name = _names.get(node.op)
        if name is None:
            name = _names[node.op] = _name(node.op)
        if name:
            seen[name] += times
            if not getattr(node.op, "writes", ()):
                made += len(node.outs)
    seen["CreateXlaTensor"] += times * made
    return made


def _name(op: Any) -> str:
    """The counter of an operator, as PyTorch/XLA names it after functionalization; empty for the tape's own."""
    func = getattr(op, "func", None)
    if func is None or getattr(op, "collective", False):  # collectives count themselves
        return ""
    namespace, name = func._schema.name.split("::")
    twin = getattr(op, "twin", None)
    if twin is not None and name not in _WRITTEN_IN_PLACE:
        name = twin._schema.name.split("::")[-1]
    elif is_view(func):
        name += "_copy"
    name = _COMPOSED.get(name, name)
    name = _FILLED.get(name, name)
    if name in _SYMBOLIC:
        name += "_symint"
    return f"xla::{name}" if namespace == "aten" else f"xla::{namespace}.{name}"
