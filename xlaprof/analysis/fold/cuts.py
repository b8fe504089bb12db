"""The graphs that ran, in order: for each the barrier or read that ended it, and its program."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from xlaprof.events import Execute
from xlaprof.events.base import APART

KEPT = 65_536  # graphs of a recording, its first ones: they show how barriers follow each other

Cut = tuple[int, int]  # stack, program


class Cuts:
    """The order of the cuts, in bounded memory. Iterates over stack and program."""

    __slots__ = ("_numbers", "_order")

    def __init__(self) -> None:
        self._numbers: dict[Cut, int] = {}
        self._order = array("i")

    @property
    def full(self) -> bool:
        """Whether no more are kept."""
        return len(self._order) >= KEPT

    def add(self, one: Execute) -> None:
        """A program ran."""
        if one.trigger not in APART:
            self.extend(((one.stack, one.program),))

    def extend(self, cuts: Iterable[Cut]) -> None:
        """Add more, in their order; those of another recording with ids of this one."""
        numbers, order = self._numbers, self._order
        for cut in cuts:
            if len(order) == KEPT:
                break
            order.append(numbers.setdefault(cut, len(numbers)))

    def __iter__(self) -> Iterator[Cut]:
        known = list(self._numbers)
        return (known[number] for number in self._order)

    def by_stack(self) -> dict[int, list[int]]:
        """By stack: the programs that ran there, in order."""
        found: dict[int, list[int]] = {}
        into = [(found.setdefault(stack, []).append, program) for stack, program in self._numbers]
        for number in self._order:
            append, program = into[number]
            append(program)
        return found
