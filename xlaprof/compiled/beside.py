"""Two texts beside each other: which lines are the same, and where they first differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from . import hlo

_LONGEST = 10_000  # lines of both that are aligned: it takes a time that grows with their product

#: positions in both, -1 where one has nothing to put there; and whether they are the same
Row = tuple[int, int, bool]


def comparable(form: str, text: str) -> str:
    """``text`` without what is different in every program: in HLO, the names of its operations."""
    return hlo.without_metadata(text) if form == "hlo" else text


def rows(mine: Sequence[str], theirs: Sequence[str]) -> list[Row]:
    """All lines of both, aligned. Of long texts what lies between the first and the last difference is not."""
    before = 0
    while before < min(len(mine), len(theirs)) and mine[before] == theirs[before]:
        before += 1
    behind = 0
    while behind < min(len(mine), len(theirs)) - before and mine[-1 - behind] == theirs[-1 - behind]:
        behind += 1
    ends = len(mine) - behind, len(theirs) - behind
    found: list[Row] = [(n, n, True) for n in range(before)]
    found += _between(mine, theirs, before, ends)
    found += ((ends[0] + n, ends[1] + n, True) for n in range(behind))
    return found


def _between(mine: Sequence[str], theirs: Sequence[str], begin: int, ends: tuple[int, int]) -> Iterator[Row]:
    one, two = mine[begin : ends[0]], theirs[begin : ends[1]]
    if len(one) + len(two) > _LONGEST:
        blocks = [("replace", 0, len(one), 0, len(two))]
    else:
        blocks = list(SequenceMatcher(None, one, two, autojunk=False).get_opcodes())
    for tag, a, past_a, b, past_b in blocks:
        for x, y in zip_longest(range(a, past_a), range(b, past_b)):
            same = tag == "equal" or (x is not None and y is not None and one[x] == two[y])
            yield -1 if x is None else begin + x, -1 if y is None else begin + y, same
