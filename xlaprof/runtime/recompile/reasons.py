"""What is said of a graph that is new: :class:`Reason`, and how operations and arguments are written in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.events import Change
from xlaprof.runtime.trace.trie import Const, Node, Packed, Ref

if TYPE_CHECKING:
    from xlaprof.recording import recorder
    from xlaprof.recording.stacks import RawFrame


class Divergence(NamedTuple):
    """The walk's first new edge: from ``parent`` to ``node``."""

    parent: Node
    node: Node
    #: numbers of the optimizer that recorded it: ``("lr", 0.1)``, ``("momentum", 0.9)``
    hyper: tuple[tuple[str, float], ...] = ()


class Reason(NamedTuple):
    """:class:`xlaprof.events.Change` before its stacks are interned."""

    what: str
    old: str
    new: str
    subject: str
    frames: tuple[RawFrame, ...]
    expected: tuple[RawFrame, ...]
    position: int
    code_seen: bool
    name: str = ""
    made: tuple[RawFrame, ...] = ()
    moved: bool = False
    role: str = ""
    condition: tuple[RawFrame, ...] = ()
    added: int = 0
    removed: int = 0
    against: int = 0

    def event(self, rec: recorder.Recorder) -> Change:
        """The change as it goes into a log."""
        return Change(
            self.what,
            self.old,
            self.new,
            self.subject,
            rec.stack(self.frames),
            rec.stack(self.expected),
            self.position,
            self.code_seen,
            self.name,
            rec.stack(self.made),
            self.moved,
            self.role,
            rec.stack(self.condition),
            self.added,
            self.removed,
            self.against,
        )


def line_of(node: Node) -> tuple[str, int] | None:
    """File and line that recorded it."""
    return (node.frames[0].file, node.frames[0].line) if node.frames else None


def operation(node: Node | None) -> str:
    """``aten::add``."""
    return node.op.aten if node is not None and node.op is not None else "nothing"


def show(value: Any) -> str:
    """An argument, for people."""
    if isinstance(value, Ref):
        return f"value {value.slot}"
    if isinstance(value, Packed):
        return f"scalar input {value}"
    if isinstance(value, Const):
        return repr(value.value)
    return str(list(value)) if isinstance(value, tuple) else repr(value)
