"""Loops of the program: the loop in which something happens, from the heads of the loops around its line."""

from __future__ import annotations

import re

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.tallies import Site
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Names

#: times that one line recorded the same operation in one graph: fewer may be layers, not an unrolled loop
REPEATS = 10
GROWTHS = 4  # growths of a graph in a row: fewer are variation from step to step
_FACTOR = 1.2  # times its first size: less is variation, too

Head = tuple[str, str, int]


def head(place: Place) -> Head:
    """The key of a loop, to compare it with others."""
    return place.acting.file, place.acting.func, place.acting.line


def innermost(names: Names, stack: int) -> Place:
    """Head of the innermost loop around ``stack``; NOWHERE where none is known."""
    return next(iter(names.loops(stack)), NOWHERE)


def shares_loop(names: Names, stack: int, barrier: int) -> bool:
    """Whether ``stack`` lies in the loop that the barrier ends the turns of; ``True`` where loops are not known."""
    loop = innermost(names, barrier)
    return not loop.line or not names.loops(stack) or head(loop) in map(head, names.loops(stack))


def is_outside(names: Names, stack: int, other: int) -> bool:
    """Whether the innermost loop around ``stack`` is an outer loop of ``other``.

    It then happens once for many times of the other: at the end of an epoch, say. ``False`` where it is not known.
    """
    mine = innermost(names, stack).acting
    if not mine.line:
        return False
    for depth, theirs in enumerate(loop.acting for loop in names.loops(other)):
        if (theirs.file, theirs.func) == (mine.file, mine.func):
            # In one function the later head is the inner loop, or another one that follows: callers know the counts.
            return theirs.line > mine.line or (theirs.line == mine.line and depth > 0)
    return False


def grows(site: Site) -> bool:
    """Whether the graphs that end there grew several times in a row, and by much."""
    visits, before, after = site.longest_growth
    return visits >= GROWTHS and after >= before * _FACTOR


def visits_per_pass(run: Fold, stack: int) -> int:
    """Visits of a barrier in each pass of its loop: mostly 1, but 7 in a hook that a model's seven layers call.

    A barrier with several visits stands in a function that none of the program's lines calls by its name, and another
    barrier of the same loop ends the pass.
    """
    loop = innermost(run.names, stack)
    if not loop.line or not _is_called_back(run.names, stack):
        return 1
    passes = max(
        (
            site.executed
            for other, site in run.sites.items()
            if site.trigger != "read" and other != stack and head(innermost(run.names, other)) == head(loop)
        ),
        default=0,
    )
    return max(1, round(run.sites[stack].executed / passes)) if passes >= 3 else 1


def _is_called_back(names: Names, stack: int) -> bool:
    """Whether a library called the innermost function: the line that led to it does not name it."""
    frames = names.frames(stack)
    if len(frames) < 2 or not frames[1].acting.code:
        return False
    name = frames[0].acting.func.rpartition(".")[2]
    return name.isidentifier() and not re.search(rf"\b{name}\b", frames[1].acting.code)
