"""The best sizes to pad a tensor to: few sizes compile seldom, many waste little.

The input is the count of each size, the cost of a compile and the device time for one unit of size. Dynamic programming
computes exactly the boundaries for 1, 2, 3... buckets that waste least. In an optimum every boundary is a size that
came, and each bucket is a stretch of neighbouring sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate

from xlaprof.analysis.model import Buckets
from xlaprof.analysis.principles import KEPT, SHOWN

#: sizes and buckets looked at: more sizes are joined with their neighbours first


def choices(
    seen: Mapping[int, int], compile_s: float, unit_s: float, *, compiled: int | None = None, most: int = SHOWN
) -> tuple[Buckets, ...]:
    """The best boundaries for 1, 2, 3... buckets, as many as there are sizes or ``most``.

    ``seen``: size -> how often it came. ``compile_s``: seconds of one compile. ``unit_s``: seconds the device works for
    one unit of size, each time. ``compiled``: programs that were compiled without padding, by default one for
    each size.
    """
    sizes, counts = _joined({size: count for size, count in seen.items() if size > 0 and count > 0})
    if not sizes:
        return ()
    was = len(sizes) if compiled is None else compiled
    total = sum(size * count for size, count in zip(sizes, counts, strict=True))
    return tuple(
        Buckets(
            edges=edges,
            compiles=number,
            saved_s=max(0, was - number) * compile_s,
            waste=(padded - total) / padded,
            cost_s=number * compile_s + (padded - total) * unit_s,
        )
        for number, (padded, edges) in enumerate(_best(sizes, counts, min(most, len(sizes))), 1)
    )


def best(found: tuple[Buckets, ...]) -> Buckets | None:
    """The choice that costs least; among equals the one with the fewest buckets."""
    return min(found, key=lambda one: (one.cost_s, one.compiles), default=None)


def _joined(seen: Mapping[int, int]) -> tuple[list[int], list[int]]:
    sizes = sorted(seen)
    step = -(-len(sizes) // KEPT) if sizes else 1
    chunks = [sizes[i : i + step] for i in range(0, len(sizes), step)]
    return [chunk[-1] for chunk in chunks], [sum(seen[size] for size in chunk) for chunk in chunks]


def _best(sizes: list[int], counts: list[int], most: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """For 1, 2, ... ``most`` buckets the least units that are computed when each size is padded, and the boundaries."""
    before = [0, *accumulate(counts)]  # how often one of the first i sizes came

    @cache
    def least(end: int, number: int) -> tuple[int, int]:
        """The units for the first ``end`` sizes, and where the last of so many buckets begins."""
        splits = range(number - 1, end) if number > 1 else (0,)
        return min(
            (
                (least(split, number - 1)[0] if split else 0) + sizes[end - 1] * (before[end] - before[split]),
                split,
            )
            for split in splits
        )

    for number in range(1, most + 1):
        edges, end = [], len(sizes)
        for left in range(number, 0, -1):
            edges.append(sizes[end - 1])
            end = least(end, left)[1]
        yield least(len(sizes), number)[0], tuple(reversed(edges))


def unit_seconds(busy: Mapping[int, tuple[int, float]]) -> float:
    """Seconds of device time for one unit of size, from ``size -> (times it ran, seconds in all)``.

    The slope of the least squares line through the mean times. Where only one size ran, or larger ones ran no longer,
    the mean time over the mean size.
    """
    points = [(size, seconds / count, count) for size, (count, seconds) in busy.items() if count > 0 and size > 0]
    weight = sum(count for _, _, count in points)
    if not weight:
        return 0.0
    size = sum(s * count for s, _, count in points) / weight
    time = sum(t * count for _, t, count in points) / weight
    spread = sum(count * (s - size) ** 2 for s, _, count in points)
    slope = sum(count * (s - size) * (t - time) for s, t, count in points) / spread if spread else 0.0
    return slope if slope > 0 else max(0.0, time / size)
