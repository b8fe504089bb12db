"""Operations and lines in a graph diff: text, and ids of interned stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlaprof.events import Operation
from xlaprof.recording.stacks import whole
from xlaprof.runtime.trace.trie import Const, Node, Packed, Ref

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder
    from xlaprof.recording.stacks import RawFrame

    Frames = tuple[RawFrame, ...]

_OPERATIONS = 4  # listed of those that came or went in one piece,
_LOOKED_AT = 64  # and looked at for that


class Places:
    """Ids of stacks: a recording's, or without one its own. 0 is the empty stack."""

    def __init__(self, rec: Recorder | None = None, elements: frozenset[int] = frozenset()) -> None:
        self.rec = rec
        self.elements = elements  # ids of nodes that take a number out for the host
        self.frames: dict[int, Frames] = {0: ()}
        self._ids: dict[Frames, int] = {}

    def __call__(self, frames: Frames) -> int:
        """The id of a stack."""
        if not frames:
            return 0
        place = self._ids.get(frames)
        if place is None:
            place = self._ids[frames] = self.rec.stack(frames) if self.rec is not None else len(self.frames)
            self.frames.setdefault(place, frames)
        return place

    def operation(self, node: Node) -> Operation:
        """A node of the trie, or of a graph."""
        called = node.op is not None and node.op.func is not None
        random = node.op is not None and node.op.random
        return Operation(operation(node), self(node.frames), node.role, random, not called, id(node) in self.elements)

    def first(self, nodes: tuple[Node, ...]) -> list[Operation]:
        """The first of them, each line's once: a tensor that a loop runs over is taken apart by as many as it has."""
        return list(dict.fromkeys(map(self.operation, nodes[:_LOOKED_AT])))[:_OPERATIONS]

    def of(self, node: Node | None) -> Operation | None:
        """The same; ``None`` where there is none."""
        return self.operation(node) if node is not None else None


def line_of(node: Node) -> tuple[str, int] | None:
    """File and line that recorded the operation, a library's where one acts."""
    return whole(node.frames)[0][:2] if node.frames else None


def operation(node: Node) -> str:
    """``aten::add``."""
    return node.op.aten if node.op is not None else "nothing"


def show(value: Any) -> str:
    """An argument, for people."""
    if isinstance(value, Ref):
        return f"value {value.slot}"
    if isinstance(value, Packed):
        return f"scalar input {value}"
    if isinstance(value, Const):
        return repr(value.value)
    return str(list(value)) if isinstance(value, tuple) else repr(value)
