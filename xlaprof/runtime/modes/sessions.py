"""``max_different_graphs``: the graphs that a compiled function was traced into, and how the next one differs.

A trace from the function's entry to its end, or to a barrier, is one graph. Graphs differ by their operations, not by
which values are alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from xlaprof.runtime.recompile.conditions import common_length
from xlaprof.runtime.recompile.places import Places
from xlaprof.runtime.recompile.trie_divergence import Match, between
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.graph import place
from xlaprof.runtime.trace.trie import Node


class Traced(NamedTuple):
    """One graph: the keys of its trace, which are compared, and its nodes."""

    keys: tuple[Any, ...]
    nodes: tuple[Node, ...]


class Session:
    """The graphs of one function."""

    def __init__(self) -> None:
        self.graphs: list[Traced] = []

    def add(self, limit: int, name: str) -> None:
        """Add the trace of the function ``name``. Raises ``RuntimeError`` if that is one graph more than ``limit``."""
        for tape in tapes.existing():
            nodes = tuple(tape.node.path())
            if not _operations(nodes):
                continue
            traced = Traced(tuple(node.key for node in nodes), nodes)
            if any(known.keys == traced.keys for known in self.graphs):
                continue
            if len(self.graphs) >= limit:
                raise RuntimeError(self._exceeded(limit, name, traced))
            self.graphs.append(traced)

    def _exceeded(self, limit: int, name: str, traced: Traced) -> str:
        """PyTorch/XLA's message, followed by the reason and the lines."""
        common = max((common_length(known.keys, traced.keys) for known in self.graphs), default=0)
        known = [k for k in self.graphs if common_length(k.keys, traced.keys) == common]
        got = _first(traced.nodes[common:])
        expected = {_text(node): node for k in known if (node := _first(k.nodes[common:])) is not None}
        lines = [f"Maximum number of different graphs allowed per function exceeded: {limit}"]
        if got is not None:
            lines.append(f"Got: {_text(got)}")
        else:
            lines.append(f"Reached the end of the function at: {_text(_operations(traced.nodes)[-1])}")
        if len(expected) == 1:
            lines += [f"Expected: {text}" for text in expected]
        elif expected:
            lines += ["Expected either of:", *(f"  - {text}" for text in expected)]
        else:
            lines.append("Expected: the end of the function")
        lines.append(f"{name}{_reason(common, traced, known, got, next(iter(expected.values()), None))}")
        return "\n".join(lines)


def _reason(common: int, traced: Traced, known: list[Traced], got: Node | None, expected: Node | None) -> str:
    """How ``traced`` differs from ``known`` graphs after their first ``common`` nodes."""
    if got is None:
        assert expected is not None
        return f" ended before {place(expected)}: each way through it that ends elsewhere is another graph"
    if expected is None:
        return f" went on with {place(got)} where it had ended before"
    new = traced.nodes[common]
    old = next(k.nodes[common] for k in known if len(k.nodes) > common)
    change = between(Places(), Match(old, new, expected, got))
    return f": {change.subject} changed from {change.old} to {change.new} ({place(got)})"


def _operations(nodes: tuple[Node, ...]) -> list[Node]:
    return [node for node in nodes if node.op is not None and node.op.func is not None]


def _first(nodes: tuple[Node, ...]) -> Node | None:
    return next(iter(_operations(nodes)), None)


def _text(node: Node) -> str:
    """``[] aten::add, xla_shape=f32[10]{0}, dynamic_dims: ()``, as PyTorch/XLA writes a node of its graphs."""
    assert node.op is not None
    twin = getattr(node.op, "twin", None)
    name = twin._schema.name if twin is not None else node.op.aten
    shapes = [_shape(out.sig) for out in node.outs]
    shape = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    return f"[] {name}, xla_shape={shape}, dynamic_dims: ()"


def _shape(sig: Any) -> str:
    order = ",".join(str(d) for d in reversed(range(len(sig.shape))))
    return f"{sig.text}{{{order}}}" if sig.shape else str(sig.text)


# -- by name: PyTorch/XLA's dynamic shape detector -------------------------------------------------------------

_named: dict[str, Session] = {}
_open: list[tuple[str, Session]] = []
_limit = 1


def set_limit(graphs: int) -> None:
    """Set how many graphs a named session may have."""
    global _limit
    _limit = graphs


def get_limit() -> int:
    """How many graphs a named session may have."""
    return _limit


def start(name: str) -> None:
    """Begin a graph of the session ``name``; :func:`end` ends it."""
    _open[:] = [(name, _named.setdefault(name, Session()))]


def end() -> None:
    """End the graph that :func:`start` began. Raises ``RuntimeError`` if it is one graph too many."""
    if not _open:
        raise RuntimeError("no session of the dynamic shape detector was started")
    name, found = _open.pop()
    found.add(_limit, name)


def remove(name: str) -> None:
    """Forget the graphs of the session ``name``, if there is one."""
    _named.pop(name, None)


# -- by function -----------------------------------------------------------------------------------------------

_of_function: WeakKeyDictionary[Callable[..., Any], Session] = WeakKeyDictionary()


def session(function: Callable[..., Any] | None) -> Session:
    """The one session of ``function``, however often it is compiled; a new one for ``None``."""
    if function is None:
        return Session()
    try:
        return _of_function.setdefault(function, Session())
    except TypeError:  # it has no hash, or cannot be referred to weakly
        return Session()
