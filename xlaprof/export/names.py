"""The names of a recording, which its events refer to by number, as an export shows them."""

from __future__ import annotations

import os

import msgspec

from xlaprof import events as ev
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names as Interned


class Line(msgspec.Struct, frozen=True):
    """A line of the user's code."""

    where: str = ""  # "train.py:41", relative to the program's working directory; "" when unknown
    code: str = ""  # the source line, stripped
    module: str = ""  # nn.Module path that ran there


class Names:
    """Texts, lines and threads of a recording. Numbers that the log never defined have names that say so."""

    def __init__(self) -> None:
        self._interned = Interned()
        self._lines: dict[Place, Line] = {}
        self._threads: dict[int, str] = {}
        self._cwd = ""

    def feed(self, event: ev.Event) -> None:
        """Take what ``event`` defines, if it defines a name."""
        if isinstance(event, ev.Text):
            self._interned.on_text(event)
        elif isinstance(event, ev.Stack):
            self._interned.on_stack(event)
        elif isinstance(event, ev.Thread):
            self._threads[event.tid] = event.name
        elif isinstance(event, ev.Header):
            self._cwd = event.cwd and event.cwd.rstrip(os.sep) + os.sep

    def text(self, id: int, otherwise: str = "") -> str:
        """The text ``id`` stands for; ``otherwise`` for id 0."""
        return self._interned.text(id) or otherwise

    def knows(self, id: int) -> bool:
        """Whether the log has defined what ``id`` stands for."""
        return self._interned.knows(id)

    def thread(self, tid: int) -> str:
        """The name of thread ``tid``."""
        return self._threads.get(tid) or ("main" if tid == 1 else f"thread {tid}")

    def line(self, stack: int) -> Line:
        """The innermost line of the user's code in stack ``stack``."""
        return self.show(self._interned.place(stack))

    def between(self, before: int, after: int) -> tuple[Line, Line]:
        """The two lines of one function between stacks ``before`` and ``after``."""
        one, two = self._interned.bracket(before, after)
        return self.show(one), self.show(two)

    def show(self, place: Place) -> Line:
        """``place`` with its file as seen from the program's working directory."""
        found = self._lines.get(place)
        if found is None:
            file = place.file.removeprefix(self._cwd)
            found = Line(f"{file}:{place.line}" if file else "", place.code, place.module)
            self._lines[place] = found
        return found
