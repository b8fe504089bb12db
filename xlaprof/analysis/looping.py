"""In which loop of the program something happens: told by the heads of the loops around its line, where known."""

from __future__ import annotations

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Names

#: times one line recorded the same operation in one graph from which on a loop was unrolled into it
REPEATS = 10

Head = tuple[str, str, int]


def head(place: Place) -> Head:
    """A loop, to be compared with others."""
    return place.file, place.func, place.line


def innermost(names: Names, stack: int) -> Place:
    """Head of the loop that repeats ``stack`` most often; nowhere where none is known."""
    return next(iter(names.loops(stack)), NOWHERE)


def is_outside(names: Names, stack: int, other: int) -> bool:
    """The innermost loop around ``stack`` is one that goes around the innermost loop of ``other``, too.

    So it happens once for many times of the other: at the end of an epoch, say. ``False`` where it is not known.
    """
    mine = innermost(names, stack)
    if not mine.line:
        return False
    for depth, theirs in enumerate(names.loops(other)):
        if (theirs.file, theirs.func) == (mine.file, mine.func):
            # In one function the later head is the inner loop, or another that follows: whoever asks knows the counts.
            return theirs.line > mine.line or (theirs.line == mine.line and depth > 0)
    return False
