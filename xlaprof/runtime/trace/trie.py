"""The trie of traces: every path from the root is a sequence of operations some trace recorded.

A :class:`Node` is the state after one more operation. Recording an operation follows an edge; where the edge exists,
the result's shapes are already known. A node keeps the operator, its arguments and the user's line, to rebuild the
graph, and the plans of the barriers that ended a trace there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from xlaprof.runtime.lowering.registry import Aval

from .storage import Sig

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax

    from xlaprof.recording.stacks import RawFrame

    from .ops import Op


class Ref(NamedTuple):
    """An argument that is a value on the tape."""

    slot: int


@dataclass(slots=True, eq=False)
class Packed:
    """An argument read from the packed scalars: kind ``"f"`` (float64) or ``"i"`` (int64), and the index.

    One object per (kind, index), hashed by identity.
    """

    kind: str
    index: int

    def __repr__(self) -> str:
        return f"{self.kind}{self.index}"


@dataclass(slots=True, eq=False)
class Const:
    """A number that is part of the graph's identity. One object per number, hashed by identity."""

    value: Any

    def __repr__(self) -> str:
        return repr(self.value)


class Spec(NamedTuple):
    """An output's signature, and for a view its strides (``None``: contiguous) and storage offset."""

    sig: Sig
    strides: tuple[int, ...] | None = None
    offset: int | None = None


class Out(NamedTuple):
    """One output of an operation, and the metadata of its tensor."""

    slot: int
    sig: Sig
    size: tuple[int, ...]
    strides: tuple[int, ...] | None  # None: contiguous
    offset: int | None
    dtype: torch.dtype

    @property
    def aval(self) -> Aval:
        """Shape and dtype, as lowerings want them."""
        return Aval(self.sig.shape, self.sig.dtype)


class Lowered(Protocol):
    """How an operation is lowered over arguments of one kind (:class:`.evaluate.Call`)."""

    error: str | None
    function: Callable[..., tuple[jax.Array, ...]]


class Unrolled(NamedTuple):
    """The repetition that covers most of a trace (:mod:`~xlaprof.runtime.tape.unrolled_loops`)."""

    times: int = 0  # how often one line recorded the same operation
    frames: tuple[RawFrame, ...] = ()  # that line
    ops: int = 0  # operations per iteration, on average
    shared: bool = False  # one value is an argument in every iteration, and no backward pass goes through all of them
    turns: tuple[int, ...] = ()  # of the loops around that line and its callers, innermost first; 0: no loop
    trains: bool = False  # it is an optimizer's, which updates the same parameters after each of many backward passes
    learns: bool = False  # a backward pass, or an optimizer's step, is part of the iterations
    step: bool = False  # a backward pass, or an optimizer's step, is part of the trace


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One operation on a path of the trie, and the state after it."""

    parent: Node | None
    key: Any
    op: Op | None
    edges: dict[Any, Node] = field(default_factory=dict)
    depth: int = 0
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    returns: tuple[Out | None, ...] = ()
    outs: tuple[Out, ...] = ()  # those that are tensors
    frames: tuple[RawFrame, ...] = ()
    module: str = ""
    role: str = ""  # which part of training recorded it (:func:`.source.role`)
    call: Lowered | None = None  # None: an operation of the tape's own
    #: key of the live values -> Plan, or Ready on the trie of eager mode
    plans: dict[tuple[int, ...], Any] = field(default_factory=dict)
    last_used: int = 0
    loops: Unrolled | None = None
    packed: tuple[int, int] | None = None  # once asked for (:meth:`scalars`)
    next_slot: int = 0
    next_seed: int = 0  # rows of the tape's seeds drawn by the random operations before this one
    # The first output again, flat, for the hot path.
    slot: int = -1
    sig: Any = None  # a Sig; None at the root
    size: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        before = self.parent
        if before is not None:
            self.depth = before.depth + 1
            self.next_slot = before.next_slot
            self.next_seed = before.next_seed + int(before.op is not None and before.op.random)

    def set_outs(self, specs: list[Spec | None]) -> None:
        """Give the outputs the next slots; ``None`` where the operation returns no tensor."""
        returns: list[Out | None] = []
        for spec in specs:
            if spec is None:
                returns.append(None)
                continue
            returns.append(Out(self.next_slot, spec.sig, spec.sig.shape, spec.strides, spec.offset, spec.sig.dtype))
            self.next_slot += 1
        self.returns = tuple(returns)
        self.outs = outs = tuple(out for out in returns if out is not None)
        if outs:
            first = outs[0]
            self.slot, self.sig, self.size, self.dtype = first.slot, first.sig, first.size, first.dtype

    def path(self) -> list[Node]:
        """The nodes from the root's child to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def scalars(self) -> tuple[int, int]:
        """How many of the tape's packed floats and ints the operations from the root to this one read."""
        if self.packed is None:
            count = {"f": 0, "i": 0}
            for node in self.path():
                for scalar in leaves(node.args, node.kwargs)[1]:
                    count[scalar.kind] = max(count[scalar.kind], scalar.index + 1)
            self.packed = (count["f"], count["i"])
        return self.packed


class Divergence(NamedTuple):
    """A trace's first new edge: from ``parent`` to ``node``."""

    parent: Node
    node: Node
    #: numbers of the optimizer that recorded it: ``("lr", 0.1)``, ``("momentum", 0.9)``
    hyperparameters: tuple[tuple[str, float], ...] = ()


def prune(root: Node, keep: int) -> int:
    """Forget the least recently used paths until at most ``keep`` nodes are left; return how many are.

    Whole subtrees go, oldest first, judged by the latest barrier that fell inside them.
    """
    # One pass bottom-up: (size, latest use) of every subtree.
    order: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.edges.values())
    size: dict[int, int] = {}
    latest: dict[int, int] = {}
    for node in reversed(order):
        size[id(node)] = 1 + sum(size[id(child)] for child in node.edges.values())
        latest[id(node)] = max((latest[id(child)] for child in node.edges.values()), default=node.last_used)
        latest[id(node)] = max(latest[id(node)], node.last_used)
    total = size[id(root)]
    by_age = sorted((node for node in order if node.parent is not None), key=lambda n: latest[id(n)])
    gone: set[int] = set()
    for node in by_age:
        if total <= keep:
            break
        if id(node) in gone or id(node.parent) in gone:
            gone.add(id(node))
            continue
        assert node.parent is not None
        del node.parent.edges[node.key]
        gone.add(id(node))
        removed = size[id(node)]
        total -= removed
        above: Node | None = node.parent
        while above is not None:
            size[id(above)] -= removed
            above = above.parent
    return total


def leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[int], list[Packed]]:
    """Slots and packed scalars of template arguments, each once, in order of first use."""
    slots: dict[int, None] = {}
    packed: dict[Packed, None] = {}
    todo: list[Any] = [*reversed(kwargs.values()), *reversed(args)]
    while todo:
        item = todo.pop()
        if type(item) is Ref:
            slots[item.slot] = None
        elif type(item) is Packed:
            packed[item] = None
        elif type(item) is tuple:
            todo.extend(reversed(item))
    return list(slots), list(packed)
