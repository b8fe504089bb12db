"""Loops of the program: in which of them something happens, from the heads of the loops around its line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Names

if TYPE_CHECKING:
    from xlaprof.analysis.fold.fold import Fold
    from xlaprof.analysis.fold.tallies import Site

#: times that one line recorded the same operation in one graph: with fewer it may be layers, not an unrolled loop
REPEATS = 10
#: growths of a graph in a row, and times its first size: by less a graph varies from step to step
GROWTHS = 4
_FACTOR = 1.2

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


def grows(site: Site) -> bool:
    """The graphs that end there are each larger than the one before, several times in a row, and not by little."""
    visits, before, after = site.longest_growth
    return visits >= GROWTHS and after >= before * _FACTOR


def visits_per_pass(run: Fold, stack: int) -> int:
    """How often a barrier is reached in each pass of its loop: 7 in a hook that a model's seven layers call, mostly 1.

    Such a barrier stands in a function that none of the program's lines calls by its name, and another barrier of the
    same loop ends the pass.
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
    """The innermost function was called through a library: the line that led to it does not name it."""
    frames = names.frames(stack)
    if len(frames) < 2 or not frames[1].code:
        return False
    name = frames[0].func.rpartition(".")[2]
    return name.isidentifier() and not re.search(rf"\b{name}\b", frames[1].code)
