"""Adding up the totals of two recordings, or of two parts of one; and the median."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import fields

_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)
_Number = TypeVar("_Number", int, float)


def add_up(mine: Any, theirs: Any) -> None:
    """Add the fields of one tally, a struct, to those of another: numbers and dicts of numbers are summed.

    Fields named ``most`` (or ``..._most``) keep the larger value; sets are united, tallies merged. Fields without a
    default identify what is counted and stay as they are.
    """
    for field in fields(mine):
        name = field.name
        ours, other = getattr(mine, name), getattr(theirs, name)
        if name.endswith("most"):
            setattr(mine, name, max(ours, other))
        elif field.default == 0 and type(ours) is int:
            setattr(mine, name, ours + other)
        elif isinstance(ours, dict):
            add_counts(ours, other)
        elif isinstance(ours, set):
            ours |= other
        elif hasattr(ours, "merge") and other is not None:
            ours.merge(other)


def add_counts(
    mine: dict[_Key, _Number], theirs: Mapping[_Key, _Number], key: Callable[[_Key], _Key] = lambda key: key
) -> None:
    """Add numbers by their keys; ``key`` maps a key of ``theirs`` to one of ``mine``."""
    for theirs_key, number in theirs.items():
        ours = key(theirs_key)
        mine[ours] = mine[ours] + number if ours in mine else number


def copied(held: Any) -> Any:
    """A copy that can be added to without changing ``held``: of dicts, and of what has a ``copy`` method."""
    if isinstance(held, dict):
        return {key: copied(one) for key, one in held.items()}
    return held.copy() if hasattr(held, "copy") else held


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
