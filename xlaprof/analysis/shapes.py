"""Shapes as a log writes them: "f32[8,128]"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from math import gcd

from xlaprof.analysis.principles import HABIT
from xlaprof.events import Change
from xlaprof.vocabulary import Vocabulary

_SIZES = r"\[([-\d, ?]*)\]"
_ROUND = 8  # what sizes that were chosen are multiples of; or they are no larger than so many times what they are


def sizes(text: str) -> list[str] | None:
    """The sizes in ``text``, "?" where one is not known; ``None`` where it is no shape."""
    found = re.search(_SIZES, text)
    return [part.strip() for part in found[1].split(",") if part.strip()] if found is not None else None


def dims(text: str) -> tuple[int, ...]:
    """The sizes in ``text`` as numbers; none where it is no shape, or one of them is not known."""
    found = sizes(text) or ()
    return tuple(map(int, found)) if "?" not in found else ()


def dtype(text: str) -> str:
    """ "f32" """
    return text.partition("[")[0] or text


def axes(change: Change) -> tuple[int, ...]:
    """The dimensions in which two shapes of one rank differ."""
    old, new = dims(change.old), dims(change.new)
    pairs = enumerate(zip(old, new, strict=True)) if len(old) == len(new) else ()
    return tuple(axis for axis, (a, b) in pairs if a != b)


def are_chosen(shapes: Iterable[str]) -> bool:
    """Whether each dimension takes multiples of one number only, round or few; beside 1, as of a single token."""
    rows = [dims(one) or ((int(one),) if one.isdecimal() else ()) for one in shapes]
    for sizes in map(set, zip(*rows, strict=False)):
        unit, most = gcd(*(sizes - {1})), max(sizes)
        if len(sizes - {1}) > 1 and unit < _ROUND and (unit == 1 or most > _ROUND * unit):
            return False
    return True


_KINDS = {"f": "float", "bf": "bfloat", "s": "int", "i": "int", "u": "uint", "c": "complex"}


def are_doubled(sizes: Iterable[str]) -> bool:
    """Whether each size is twice the one before: what is padded so has as few graphs as its author wanted."""
    numbers = sorted(int(one) for one in sizes if one.isdecimal())
    return len(numbers) >= HABIT and all(2 * one == other for one, other in pairwise(numbers))


def dtype_name(kind: str) -> str:
    """ "float32" of "f32"; what is no short name stays as it is."""
    found = re.fullmatch(r"([a-z]+)(\d+)", kind)
    if kind == "pred":
        return "bool"
    return f"{_KINDS[found[1]]}{found[2]}" if found is not None and found[1] in _KINDS else kind


def dtype_code(words: Vocabulary, kind: str) -> str:
    """ "torch.float32" of "f32" """
    name = dtype_name(kind)
    return f"{words.arrays}.{name}" if name != kind else kind
