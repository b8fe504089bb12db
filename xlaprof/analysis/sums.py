"""Adding up the totals of two recordings, or of two parts of one; and the median."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)
_Number = TypeVar("_Number", int, float)

#: what is kept one by one of a kind of event, or apart by place or name: memory is bounded, however long a program runs
RECORDS = 10_000


class Tally(msgspec.Struct):
    """What is counted of one thing."""

    def merge(self, other: Self) -> None:
        """Add another's fields: numbers and dicts of numbers are summed, sets united, tallies merged.

        Fields named ``most`` (or ``..._most``) keep the larger value. Fields without a default identify what is
        counted and stay as they are.
        """
        for name, default in zip(reversed(self.__struct_fields__), reversed(self.__struct_defaults__), strict=False):
            ours, theirs = getattr(self, name), getattr(other, name)
            if name.endswith("most"):
                setattr(self, name, max(ours, theirs))
            elif default is False:
                setattr(self, name, ours or theirs)
            elif default == 0 and type(ours) is int:
                setattr(self, name, ours + theirs)
            elif isinstance(ours, dict):
                add_counts(ours, theirs)
            elif isinstance(ours, set):
                ours |= theirs
            elif hasattr(ours, "merge") and theirs is not None:
                ours.merge(theirs)


_Tally = TypeVar("_Tally", bound=Tally)


def merged(make: Callable[[], _Tally], tallies: Iterable[_Tally]) -> _Tally:
    """The sum of tallies, which stay as they are; ``make``: a new one."""
    whole = make()
    for tally in tallies:
        whole.merge(tally)
    return whole


def add_counts(
    mine: dict[_Key, _Number], theirs: Mapping[_Key, _Number], key: Callable[[_Key], _Key] = lambda key: key
) -> None:
    """Add numbers by their keys; ``key`` maps a key of ``theirs`` to one of ``mine``."""
    for theirs_key, number in theirs.items():
        ours = key(theirs_key)
        mine[ours] = mine[ours] + number if ours in mine else number


def copied(held: Any) -> Any:
    """A copy that can be added to without changing ``held``: of containers of values, and of structs of such."""
    if isinstance(held, dict):
        return {key: copied(one) for key, one in held.items()}
    if hasattr(held, "copy"):
        return held.copy()
    return type(held)(*map(copied, msgspec.structs.astuple(held))) if isinstance(held, msgspec.Struct) else held


def twin(of: _T) -> _T:
    """A copy of an object that is made without arguments: it can be added to without changing ``of``."""
    made = type(of)()
    for name, held in vars(of).items():
        setattr(made, name, copied(held))
    return made


def grouped(items: Iterable[_T], key: Callable[[_T], _Key]) -> dict[_Key, list[_T]]:
    """The items by their keys, in the order in which they come."""
    found: dict[_Key, list[_T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def kept(mine: dict[_Key, _T], key: _Key, most: int, make: Callable[[], _T]) -> _T:
    """The tally of a key; a new one is not kept once there are ``most``."""
    tally = mine.get(key)
    if tally is None:
        tally = make()
        if len(mine) < most:
            mine[key] = tally
    return tally


def add_bounded(mine: dict[_Key, int], key: _Key, number: int, most: int) -> None:
    """Add a number, unless its key is new and there are ``most`` keys already."""
    if key in mine or len(mine) < most:
        mine[key] = mine.get(key, 0) + number


def tally_of(mine: dict[_Key, _T], key: _Key, most: int, rest: _Key, make: Callable[[], _T]) -> _T:
    """The tally of a key; all further keys count as ``rest`` once there are ``most``."""
    tally = mine.get(key)
    if tally is None and len(mine) >= most:
        key = rest
        tally = mine.get(key)
    if tally is None:
        tally = mine[key] = make()
    return tally


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two. (The standard library's takes 10 ms to import.)"""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
