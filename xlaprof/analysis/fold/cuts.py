"""The graphs that ran, in order: for each the barrier or read that ended it, and its program."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from xlaprof.events import Execute

KEPT = 65_536  # graphs of a recording, its first ones: they show how barriers follow each other

Cut = tuple[int, int]  # stack, program

#: these run by themselves: a barrier ends what is recorded beside them
_APART = frozenset({"dynamo", "eager", "fallback"})


class Cuts:
    """The order of the cuts, in bounded memory. Iterates over stack and program."""

    __slots__ = ("_numbers", "_order")

    def __init__(self) -> None:
        self._numbers: dict[Cut, int] = {}
        self._order = array("i")

    def add(self, executions: Iterable[Execute]) -> None:
        """Programs ran, in this order."""
        if len(self._order) < KEPT:
            self.extend((one.stack, one.program) for one in executions if one.trigger not in _APART)

    def extend(self, cuts: Iterable[Cut]) -> None:
        """Add more; those of another recording with ids of this one."""
        numbers, order = self._numbers, self._order
        for cut in cuts:
            if len(order) == KEPT:
                break
            order.append(numbers.setdefault(cut, len(numbers)))

    def __iter__(self) -> Iterator[Cut]:
        known = list(self._numbers)
        return (known[number] for number in self._order)
