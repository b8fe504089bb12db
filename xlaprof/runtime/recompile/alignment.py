"""Two graphs of one barrier side by side: which operations are the same, and what differs.

Operations of the same name from the same line are a pair; all others came or went. Where another part of the program
began with the same operations, it has recorded them before, and its lines are theirs: such ones need only the name. The
arguments of a pair are compared after values of the old graph are mapped to those of the new, so that consequences of
an earlier difference (the sizes after a size) are not listed again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.runtime.trace.ops import SCALAR, TENSOR
from xlaprof.runtime.trace.trie import Const, Packed, Ref

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from xlaprof.runtime.tape.graph import Graph
    from xlaprof.runtime.trace.trie import Node

#: limit of pairs of operations compared, where two graphs differ in the middle
_EFFORT = 1_000_000
_LIMIT = 64  # differences listed


class Unmatched(NamedTuple):
    """Operations ``old`` in whose place ``new`` came; either may be empty."""

    old: tuple[Node, ...]
    new: tuple[Node, ...]
    before: Node | None  # operations of the new graph around them
    after: Node | None

    @property
    def roles(self) -> set[str]:
        """Parts of training that recorded them."""
        return {node.role for node in (*self.old, *self.new)}


class Found(NamedTuple):
    """One thing that differs. ``kind`` is that of :class:`xlaprof.events.Difference`."""

    kind: str
    argument: str  # name of the argument, if one differs
    old: Any
    new: Any
    expected: Node | None  # the operation of the old graph
    came: Node | None  # that of the new graph
    input: int = -1  # slot of the new graph's input that differs
    block: Unmatched | None = None


@dataclass(frozen=True)
class Alignment:
    """All differences of two graphs."""

    differences: tuple[Found, ...]
    blocks: tuple[Unmatched, ...]
    common: int  # operations before the first difference
    slots: dict[int, int]  # values of the old graph -> of the new

    @property
    def added(self) -> int:
        """Operations that came."""
        return sum(len(block.new) for block in self.blocks)

    @property
    def removed(self) -> int:
        """Operations that had been there."""
        return sum(len(block.old) for block in self.blocks)

    @property
    def distance(self) -> tuple[int, int]:
        """Smaller where the graphs are more alike."""
        return self.added + self.removed, len(self.differences)

    @cached_property
    def contents(self) -> Counter[tuple[Any, ...]]:
        """What differs, apart from where: comparable with that of another alignment of the same new graph."""
        operations = (("-", token(node)) for block in self.blocks for node in block.old)
        more = (("+", token(node)) for block in self.blocks for node in block.new)
        others = (
            (found.kind, found.argument, token(found.came), repr(found.new))
            for found in self.differences
            if found.block is None and found.came is not None
        )
        return Counter(chain(operations, more, others))

    @property
    def has_other_shapes(self) -> bool:
        """Does an input have another shape or dtype?"""
        return any(found.kind in ("shape", "dtype") for found in self.differences)


def align(old: Graph, new: Graph, shared: AbstractSet[int] = frozenset()) -> Alignment:
    """How ``new`` differs from ``old``, in the order of recording.

    ``shared``: ids of nodes that another part of the program recorded first, so that they have its lines.
    """
    mapping = _Mapping(old, new)
    found: list[Found] = []
    blocks: list[Unmatched] = []
    common = -1
    for tag, i, i_end, j, j_end in _opcodes(old.nodes, new.nodes, shared):
        if tag == "equal":
            for a, b in zip(old.nodes[i:i_end], new.nodes[j:j_end], strict=True):
                if len(found) < _LIMIT:
                    found += mapping.pair(a, b)
                mapping.match(a, b)
                if found and common < 0:
                    common = j
                j += 1
            continue
        block = Unmatched(
            old.nodes[i:i_end],
            new.nodes[j:j_end],
            new.nodes[j - 1] if j else None,
            new.nodes[j_end] if j_end < len(new.nodes) else None,
        )
        blocks.append(block)
        if common < 0:
            common = j
        if len(found) < _LIMIT:
            came = block.new[0] if block.new else block.after
            expected = block.old[0] if block.old else old.nodes[i] if i < len(old.nodes) else None
            found.append(Found("operation", "", None, None, expected, came, block=block))
    return Alignment(tuple(found), tuple(blocks), len(new.nodes) if common < 0 else common, mapping.slots)


def is_same_work(old: Graph, new: Graph) -> bool:
    """Whether two graphs are versions of one work: both train or neither does, and mostly the same lines recorded them.

    What one has beside the other does not count, nor do the lines of training, which models share.
    """
    if _trains(old) is not _trains(new):
        return False
    before, now = (Counter(node.frames for node in graph.nodes if not node.role) for graph in (old, new))
    return 2 * (before & now).total() >= min(before.total(), now.total())


def _trains(graph: Graph) -> bool:
    return any(node.role == "backward" for node in graph.nodes)


#: (tag, from, to, from, to): a range of the old graph, and one of the new, as in :mod:`difflib`
_Opcode = tuple[str, int, int, int, int]


def _opcodes(old: tuple[Node, ...], new: tuple[Node, ...], shared: AbstractSet[int]) -> list[_Opcode]:
    """Which ranges of the two graphs are equal, and which differ."""
    if len(old) == len(new) and all(a.op is b.op or _name(a) == _name(b) for a, b in zip(old, new, strict=True)):
        return [("equal", 0, len(old), 0, len(new))] if old else []
    a, b = [token(node) for node in old], [token(node) for node in new]
    most = min(len(a), len(b))
    head = next((n for n in range(most) if a[n] != b[n]), most)
    tail = next((n for n in range(most - head) if a[-1 - n] != b[-1 - n]), most - head)
    left, right = a[head : len(a) - tail], b[head : len(b) - tail]
    inner: list[_Opcode] = [("replace", 0, len(left), 0, len(right))]
    if len(left) * len(right) <= _EFFORT:
        inner = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    found: list[_Opcode] = [("equal", 0, head, 0, head)] if head else []
    found += [(tag, head + i, head + i_end, head + j, head + j_end) for tag, i, i_end, j, j_end in inner]
    if tail:
        found.append(("equal", len(a) - tail, len(a), len(b) - tail, len(b)))
    return [part for one in found for part in (_by_name(old, new, one, shared) if one[0] == "replace" else [one])]


def _by_name(old: tuple[Node, ...], new: tuple[Node, ...], one: _Opcode, shared: AbstractSet[int]) -> list[_Opcode]:
    """A range that differs, without the pairs of one name of which either is ``shared``."""
    _, i, i_end, j, j_end = one
    left, right = old[i:i_end], new[j:j_end]
    if len(left) * len(right) > _EFFORT or shared.isdisjoint(map(id, (*left, *right))):
        return [one]
    matched = SequenceMatcher(None, [*map(_name, left)], [*map(_name, right)], autojunk=False)
    found: list[_Opcode] = []
    for tag, a, a_end, b, b_end in matched.get_opcodes():
        known = all(id(x) in shared or id(y) in shared for x, y in zip(left[a:a_end], right[b:b_end], strict=False))
        found.append((tag if tag != "equal" or known else "replace", i + a, i + a_end, j + b, j + b_end))
    return found


def _name(node: Node) -> str:
    assert node.op is not None
    return node.op.name


def token(node: Node) -> tuple[Any, ...]:
    """Name and line: equal for two operations that may be a pair."""
    return _name(node), node.frames


class _Mapping:
    """Maps values of the old graph to those of the new, as far as they were compared."""

    def __init__(self, old: Graph, new: Graph) -> None:
        self.slots: dict[int, int] = {}
        self._back: dict[int, int] = {}  # inputs only
        self._packed: dict[Packed, Packed] = {}
        self._packed_back: dict[Packed, Packed] = {}
        self._old = dict(zip(old.inputs, old.sigs, strict=True))
        self._new = dict(zip(new.inputs, new.sigs, strict=True))

    def match(self, a: Node, b: Node) -> None:
        """Map the results of a pair to each other."""
        for out, other in zip(a.outs, b.outs, strict=False):
            self.slots.setdefault(out.slot, other.slot)

    def pair(self, a: Node, b: Node) -> Iterator[Found]:
        """Differences between the arguments of a pair."""
        assert b.op is not None
        names = getattr(b.op, "names", ())
        kinds = getattr(b.op, "kinds", ())
        was, now = _arguments(a, len(b.args)), _arguments(b, len(a.args))
        for i, (x, y) in enumerate(zip(was, now, strict=False)):
            name = names[i] if i < len(names) else str(i)
            yield from self._values(a, b, name, kinds[i] if i < len(kinds) else "", x, y)
        if len(was) != len(now):
            yield Found("argument", "arguments", len(was), len(now), a, b)
        kwarg_kinds = getattr(b.op, "kwarg_kinds", {})
        for name in {**a.kwargs, **b.kwargs}:
            x, y = (node.kwargs.get(name, _default(node, name)) for node in (a, b))
            yield from self._values(a, b, name, kwarg_kinds.get(name, ""), x, y)

    def _values(self, a: Node, b: Node, name: str, kind: str, x: Any, y: Any) -> Iterator[Found]:
        if type(x) is Ref and type(y) is Ref:
            yield from self._refs(a, b, name, x.slot, y.slot)
        elif type(x) is Packed and type(y) is Packed:
            if self._packed.setdefault(x, y) is not y or self._packed_back.setdefault(y, x) is not x:
                yield Found("scalar", name, x, y, a, b)
        elif isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
            if len(x) != len(y):
                tensors = any(type(item) is Ref for item in (*x, *y))
                was, now = (f"{len(x)} tensors", f"{len(y)} tensors") if tensors else (x, y)
                yield Found("inputs" if tensors else "argument", name, was, now, a, b)
            elif any(type(item) in (Ref, Packed) for item in (*x, *y)):
                for one, other in zip(x, y, strict=True):
                    yield from self._values(a, b, name, kind, one, other)
            elif tuple(x) != tuple(y):
                yield Found("argument", name, x, y, a, b)
        elif Packed in (type(x), type(y)):
            yield Found("scalar", name, x, y, a, b)
        elif not _same(x, y):
            if name == getattr(b.op, "read", None):  # decided by values, not by the program's text
                yield Found("size", name, x, y, a, b)
            else:
                number = kind is SCALAR or (kind is TENSOR and Ref not in (type(x), type(y)))  # as a tensor's operand
                yield Found("scalar" if number else "argument", name, x, y, a, b)

    def _refs(self, a: Node, b: Node, name: str, x: int, y: int) -> Iterator[Found]:
        known = self.slots.get(x)
        if known is not None:
            if known != y:
                yield Found("aliasing", name, None, None, a, b, y if y in self._new else -1)
            return
        was, now = self._old.get(x), self._new.get(y)
        self.slots[x] = y
        if now is not None and self._back.setdefault(y, x) != x:  # two tensors before, and one now
            yield Found("aliasing", name, None, None, a, b, y)
            return
        if was is not None and now is not None:
            if was is not now:
                what = "shape" if was.shape != now.shape else "dtype" if was.dtype != now.dtype else "sharding"
                yield Found(what, name, was.text, now.text, a, b, y)
        elif was is not None or now is not None:
            yield Found("inputs", name, was, now, a, b, y if now is not None else -1)


def _arguments(node: Node, count: int) -> tuple[Any, ...]:
    """Positional arguments, with defaults for those left out, up to ``count``."""
    names = getattr(node.op, "names", ())
    missing = names[len(node.args) : count]
    return (*node.args, *(_default(node, name) for name in missing)) if missing else node.args


def _default(node: Node, name: str) -> Any:
    """The default of an argument."""
    schema = getattr(getattr(node.op, "func", None), "_schema", None)
    return next((a.default_value for a in schema.arguments if a.name == name), None) if schema is not None else None


def _same(x: Any, y: Any) -> bool:
    x, y = (item.value if type(item) is Const else item for item in (x, y))
    if isinstance(x, float) and isinstance(y, float):
        return repr(x) == repr(y)  # -0.0 is another constant than 0.0, and NaN is itself
    return type(x) is type(y) and bool(x == y)
