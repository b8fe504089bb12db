"""Interned strings and places of a run, resolved on demand (a log may use an id before it names it)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, count, repeat
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from xlaprof.analysis.model import Place
from xlaprof.events import Frame, Stack, Text

_T = TypeVar("_T")

NOWHERE = Place()
#: names of the functions to which Python before 3.12 compiles comprehensions
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_TEXTS, _STACKS = 200_000, 70_000  # kept: more than a recording hands out


Head = tuple[str, str, int]


def head(loop: Place) -> Head:
    """The key of a loop, to compare it with others."""
    return loop.acting.file, loop.acting.func, loop.acting.line


class Ids(NamedTuple):
    """The ids of one recording's texts and stacks in another recording; 0 where the log never named them."""

    texts: dict[int, int]
    stacks: dict[int, int]

    def text(self, id: int) -> int:
        return self.texts.get(id, 0)

    def stack(self, id: int) -> int:
        return self.stacks.get(id, 0)

    def pair(self, key: tuple[int, int]) -> tuple[int, int]:
        """Ids of a stack and a text."""
        return self.stack(key[0]), self.text(key[1])

    def mapped(self, one: Any, stacks: Iterable[str] = (), texts: Iterable[str] = ()) -> Any:
        """A struct or named tuple with these fields mapped, as far as it has them."""
        changes = {name: self.stack(getattr(one, name)) for name in stacks if hasattr(one, name)}
        changes |= {name: self.text(getattr(one, name)) for name in texts if hasattr(one, name)}
        return replace(one, **changes) if isinstance(one, Struct) else one._replace(**changes)


class Names:
    """The :class:`Text` and :class:`Stack` events of one recording, by id."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._stacks: dict[int, Stack] = {}
        self._places: dict[int, Place] = {}  # resolved once
        self._turns: dict[int, tuple[tuple[int, int, int, int], ...]] = {}

    def on_text(self, event: Text) -> None:
        if len(self._texts) < _TEXTS or event.id in self._texts:
            self._texts[event.id] = event.text

    def on_stack(self, event: Stack) -> None:
        if len(self._stacks) < _STACKS or event.id in self._stacks:
            self._stacks[event.id] = event

    def text(self, text_id: int) -> str:
        """The string behind an id; ``""`` for id 0, ``"#7"`` for one the log never named."""
        if not text_id:
            return ""
        return self._texts.get(text_id, f"#{text_id}")

    def lines(self) -> Iterator[Place]:
        """Every line that the log names with its text, once."""
        seen = set[tuple[str, int]]()
        for stack in self._stacks:
            for place in self.frames(stack):
                if place.code and place.at not in seen:
                    seen.add(place.at)
                    yield place

    def knows(self, text_id: int) -> bool:
        """Whether the log has named a string."""
        return text_id in self._texts

    def place(self, stack_id: int) -> Place:
        """The line behind a stack id; an empty :class:`Place` for id 0 and for one the log never named."""
        if (place := self._places.get(stack_id)) is not None:
            return place
        if (stack := self._stacks.get(stack_id)) is None:
            return NOWHERE
        if not stack.frames:
            return Place(module=self.text(stack.module))
        place = self._at(_path(stack), 0, stack.module)
        if place.file and not place.file.startswith("#"):
            self._places[stack_id] = place
        return place

    def frames(self, stack_id: int) -> tuple[Place, ...]:
        """The lines of a stack, innermost first, libraries' too; none for one that the log never named.

        A library's line is the user's line further out, with the libraries' lines up to it.
        """
        path = self._path(stack_id)
        return tuple(self._at(path, i) for i in range(len(path)))

    def takers(self, stack_id: int) -> tuple[str, ...]:
        """The statements that take what the innermost line of a stack binds; none where they are not known."""
        stack = self._stacks.get(stack_id)
        return tuple(map(self.text, stack.takers)) if stack is not None else ()

    def bracket(self, before: int, after: int) -> tuple[Place, Place]:
        """The two lines between which the program went from ``before`` to ``after``.

        The innermost frames may lie deep in two unrelated functions; these are the lines in the innermost function that
        both stacks pass through.
        """
        best: tuple[int, int] | None = None
        old, new = self._path(before), self._path(after)
        for i in range(1, min(len(old), len(new)) + 1):
            (mine, _), (theirs, _) = old[-i], new[-i]
            if (mine.file, mine.func) != (theirs.file, theirs.func):
                break
            best = len(old) - i, len(new) - i
            if mine.line != theirs.line:
                break  # frames further in belong to different calls
        if best is None:
            return self.place(before), self.place(after)
        return self._at(old, best[0]), self._at(new, best[1])

    def loops(self, stack_id: int) -> tuple[Place, ...]:
        """Heads of the loops that repeat a place, innermost first: the innermost one of each function on its stack.

        A comprehension counts for the function around it, which is on the stack as well.
        """
        return tuple(loop for loop, _ in self.turns(stack_id))

    def loop(self, stack_id: int) -> Place:
        """Head of the innermost loop around a place; NOWHERE where none is known."""
        return next(iter(self.loops(stack_id)), NOWHERE)

    def heads(self, stack_id: int) -> set[Head]:
        """The keys of the loops around a place."""
        return set(map(head, self.loops(stack_id)))

    def is_outside(self, stack: int, other: int) -> bool:
        """Whether the innermost loop around ``stack`` is an outer loop of ``other``.

        It then happens once for many times of the other: at the end of an epoch, say. ``False`` where it is not known.
        """
        mine = self.loop(stack).acting
        if not mine.line:
            return False
        for depth, theirs in enumerate(loop.acting for loop in self.loops(other)):
            if (theirs.file, theirs.func) == (mine.file, mine.func):
                # In one function the later head is the inner loop, or one that follows: callers know the counts.
                return theirs.line > mine.line or (theirs.line == mine.line and depth > 0)
        return False

    def same_turn(self, stack: int, other: int) -> bool:
        """Whether both are one line of one loop's body, whatever called the function of the loop. Constant cost."""
        mine = self._turn(stack)
        return bool(mine) and mine == self._turn(other)

    def _turn(self, stack_id: int) -> tuple[tuple[int, int, int, int], ...]:
        """The key of a line up to the innermost loop around it; () where none is known."""
        if (found := self._turns.get(stack_id)) is None:
            path = self._path(stack_id)
            until = next((i for i, (frame, _) in enumerate(path, 1) if self._repeats(frame)), 0)
            found = tuple((frame.file, frame.func, frame.line, frame.loop) for frame, _ in path[:until])
            if path:
                self._turns[stack_id] = found
        return found

    def shares_loop(self, stack: int, barrier: int) -> bool:
        """Whether ``stack`` lies in the loop that the barrier ends the turns of; ``True`` where loops are not known.

        A library's loop over callbacks, say, is another one wherever it is called from.
        """
        theirs, mine = self._path(barrier), self._path(stack)
        at = next((i for i, (frame, _) in enumerate(theirs) if self._repeats(frame)), None)
        if at is None or not self.loops(stack):
            return True
        loop = theirs[at][0]
        return any(
            (frame.file, frame.func, frame.loop) == (loop.file, loop.func, loop.loop)
            and all(
                (one.file, one.func, one.line) == (other.file, other.func, other.line)
                for (one, _), (other, _) in zip(mine[i + 1 :], theirs[at + 1 :], strict=False)
            )
            for i, (frame, _) in enumerate(mine)
        )

    def _head(self, place: Place, frame: Frame) -> Place:
        """The head of the loop around ``frame``, the innermost line of ``place``."""
        head = replace(place.acting, line=frame.loop, code=self.text(frame.head))
        return replace(place, library=(head, *place.library[1:])) if place.library else head

    def turns(self, stack_id: int, turns: Iterable[int] = ()) -> tuple[tuple[Place, int], ...]:
        """The loops of :meth:`loops`, each with its number of ``turns``, which are those of the frames of a stack."""
        path = self._path(stack_id)
        return tuple(
            (self._head(self._at(path, i), frame), times)
            for i, ((frame, _), times) in enumerate(zip(path, chain(turns, repeat(0)), strict=False))
            if self._repeats(frame)
        )

    def _repeats(self, frame: Frame) -> bool:
        return bool(frame.loop) and not self.text(frame.func).endswith(_COMPREHENSIONS)

    def adopt(self, other: Names) -> Ids:
        """Take over the names of another recording; returns its ids in this one."""
        ids = Ids(_adopt(self._texts, other._texts, str), {})

        def ours(stack: Stack) -> Stack:
            frames, library = (
                [ids.mapped(frame, texts=("file", "func", "code", "head")) for frame in some]
                for some in (stack.frames, stack.library)
            )
            takers = [ids.text(one) for one in stack.takers]
            return replace(stack, frames=frames, module=ids.text(stack.module), library=library, takers=takers)

        theirs = {id: ours(stack) for id, stack in other._stacks.items()}
        ids.stacks.update(_adopt(self._stacks, theirs, _key))
        return ids

    def _path(self, stack_id: int) -> Path:
        stack = self._stacks.get(stack_id)
        return _path(stack) if stack is not None else []

    def _at(self, path: Path, at: int, module: int = 0) -> Place:
        """The line at ``path[at]``: the user's there or the next further out, with the library's frames up to it."""
        mine = next((i for i in range(at, len(path)) if path[i][1]), -1)
        if mine < 0:
            return self._place_of(path[at][0], module)
        library = tuple(self._place_of(frame) for frame, _ in path[at:mine])
        return self._place_of(path[mine][0], module, library)

    def _place_of(self, frame: Frame, module: int = 0, library: tuple[Place, ...] = ()) -> Place:
        return Place(
            file=self.text(frame.file),
            line=frame.line,
            func=self.text(frame.func),
            code=self.text(frame.code),
            module=self.text(module),
            library=library,
            loop=frame.loop,
        )


#: frames innermost first, and whether they are the user's
Path = list[tuple[Frame, bool]]


def _path(stack: Stack) -> Path:
    """All frames of a stack."""
    if not stack.library:
        return [(frame, True) for frame in stack.frames]
    under: dict[int, list[tuple[Frame, bool]]] = {}
    for frame, depth in zip(stack.library, stack.depths, strict=False):
        under.setdefault(depth, []).append((frame, False))
    return [one for depth, frame in enumerate(stack.frames) for one in (*under.get(depth, ()), (frame, True))]


def _adopt(mine: dict[int, _T], theirs: dict[int, _T], key: Callable[[_T], Hashable]) -> dict[int, int]:
    """Take over what is new; returns the ids of all of theirs in mine."""
    known = {key(one): id for id, one in mine.items()}
    free = count(max(mine, default=0) + 1)
    ids = {0: 0}
    for id, one in theirs.items():
        if (same := key(one)) not in known:
            known[same] = next(free)
            mine[known[same]] = one
        ids[id] = known[same]
    return ids


def _key(stack: Stack) -> tuple[tuple[tuple[int, int, int, bool], ...], int]:
    return tuple((frame.file, frame.line, frame.func, users) for frame, users in _path(stack)), stack.module
