"""The texts of JAX's programs, for a recording that keeps them: the jaxpr that is lowered, XLA's HLO at the first run.

JAX says which function it lowers and, later, which executable runs, and not that the two belong together. A call that
has to be compiled runs in the same frame of JAX's; a program that was compiled ahead is the only one of its name that
has not run yet. Where there are several of those, the executable gets a number of its own.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from . import internals

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_REMEMBERED = 256  # programs that were compiled and have not run


class _Made(NamedTuple):
    """A program that was compiled."""

    number: int
    name: str
    where: tuple[int, int]  # the thread, and JAX's frame in it that handles the call; 0: none


class Texts:
    """Of one recording."""

    def __init__(self, rec: Recorder) -> None:
        self._rec = rec
        self._numbers = itertools.count(1)
        self._made: list[_Made] = []

    def compiled(self, name: str, jaxpr: Any, miss: internals.Miss | None, stack: int) -> int:
        """A program was compiled: keep its jaxpr, where that is known. Returns the program's number."""
        number = next(self._numbers)
        if jaxpr is not None:
            self._rec.keep_code("jax", str(number), "jaxpr", lambda: _printed(jaxpr), name, stack)
        self._made.append(_Made(number, name, _here(miss)))
        del self._made[:-_REMEMBERED]
        return number

    def runs(self, name: str, miss: internals.Miss | None) -> int:
        """An executable, which JAX calls ``name``, runs for the first time: its program's number."""
        here = _here(miss)
        if name.startswith("jit(") and name.endswith(")"):
            name = name[4:-1]
        mine = [one for one in self._made if one.name == name and (one.where == here if here[1] else not one.where[1])]
        if not mine or (len(mine) > 1 and not here[1]):
            return next(self._numbers)
        self._made.remove(mine[-1])
        return mine[-1].number

    def keep_hlo(self, executable: Any, number: int, name: str, stack: int) -> None:
        """Keep XLA's text of a program. It takes milliseconds: not in the program's own thread."""
        asked = internals.loaded(executable)
        if asked is not None:
            self._rec.keep_code("jax", str(number), "hlo", lambda: asked.hlo_modules()[0].to_string(), name, stack)


def _here(miss: internals.Miss | None) -> tuple[int, int]:
    return threading.get_ident(), miss.frame if miss is not None else 0


def _printed(jaxpr: Any) -> str:
    """A closed jaxpr with the user's lines."""
    return f"{jaxpr.jaxpr.pretty_print(source_info=True, use_color=False)}\n"
