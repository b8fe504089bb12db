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
    """Whether each dimension takes multiples of one number only, round or few; beside 1, as of a single token. Three or
    more may each be one more than that: a row of words has one more than its targets.

    Or one does, and its size decides those of the others: so many rows of a width as a batch has room for.
    """
    rows = {dims(one) or ((int(one),) if one.isdecimal() else ()) for one in shapes}
    columns = [set(sizes) for sizes in zip(*rows, strict=False)]
    chosen = [sizes for sizes in columns if _is_chosen(sizes)]
    return chosen == columns or any(1 < len(sizes) == len(rows) for sizes in chosen)


def _is_chosen(sizes: set[int]) -> bool:
    unit, most = gcd(*(sizes - {1})), max(sizes)
    one_more = len(sizes) >= HABIT and gcd(*(size - 1 for size in sizes)) >= _ROUND
    return len(sizes - {1}) <= 1 or unit >= _ROUND or (unit > 1 and most <= _ROUND * unit) or one_more


def are_buckets(sizes: Iterable[str]) -> bool:
    """Whether sizes were chosen to pad to, the last of which need not be round: it is as much as the longest needs."""
    numbers = sorted({int(one) for one in sizes if one.isdecimal()} - {1})
    return len(numbers) >= HABIT and are_chosen(map(str, numbers[:-1]))


def are_of_one_budget(shapes: Iterable[str]) -> bool:
    """Whether each width has as many rows as one number of elements has room for: padded to one size, all of them would
    be a multiple of the work."""
    rows = [dims(one) or () for one in shapes]
    varying = [at for at, sizes in enumerate(zip(*rows, strict=False)) if len(set(sizes)) > 1]
    if len(rows) < HABIT or len(varying) != 2:
        return False
    pairs = [(row[varying[0]], row[varying[1]]) for row in rows]
    either = (pairs, [(width, count) for count, width in pairs])
    return any(max(n * width for n, width in one) < min((n + 1) * width for n, width in one) for one in either)


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
