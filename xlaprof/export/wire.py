"""Protobuf's wire format, for what an export has millions of: events of a profile, encoded in columns, and curves.

Messages of a library would be right, too, and take ten times as long.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_AT_ONCE = 16_384  # events
_SHORT = [value.to_bytes() for value in range(0x80)]


def key(number: int, kind: int) -> bytes:
    """What precedes the value of field ``number``."""
    return varint(number << 3 | kind)


def varint(value: int) -> bytes:
    """An integer of at most 64 bits; a negative one as its two's complement."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    if 0 <= value < 0x20_0000:  # three bytes at most: without a loop
        if value < 0x4000:
            return bytes((value & 0x7F | 0x80, value >> 7))
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def prefixed(number: int, value: bytes) -> bytes:
    """Field ``number`` of bytes, of a text or of a message."""
    return key(number, BYTES) + varint(len(value)) + value


class Numbers:
    """Encodes fields of floating-point numbers whose beginnings are the same each time, all of them at once."""

    def __init__(self, heads: Sequence[bytes], kind: str) -> None:
        """``heads``: what precedes each number; ``kind``: "d", or "f" for half as many bits."""
        self._pack = struct.Struct("<" + "".join(f"{len(head)}s{kind}" for head in heads)).pack
        self._heads = heads

    def __call__(self, values: Iterable[float]) -> bytes:
        return self._pack(*(part for field in zip(self._heads, values, strict=True) for part in field))


class Events:
    """``XEvent`` messages in columns: ids of names, and times in picoseconds that are not negative."""

    def __init__(self, names: Column, offsets: Column, durations: Column, stats: Sequence[bytes]) -> None:
        """``stats``: of each event its encoded fields of statistics."""
        self._columns = (names, offsets, durations)
        self._stats = stats

    def size(self) -> int:
        """Bytes that :meth:`encode` yields."""
        bodies = (body for _, body in map(self._measure, self._chunks()))
        return sum(int((1 + _size(body) + body).sum()) for body in bodies)

    def encode(self, number: int) -> Iterator[bytes]:
        """The events as the repeated field ``number`` of a message."""
        for chunk in self._chunks():
            sizes, body = self._measure(chunk)
            lengths = _size(body)
            heads = 1 + lengths + 3 + sum(sizes)
            ends = np.cumsum(heads)
            out = np.empty(int(ends[-1]), np.uint8)
            at = ends - heads
            starts = at.tolist()
            out[at] = number << 3 | BYTES
            _put(out, at + 1, body, lengths)
            at = at + 1 + lengths
            for nth, (column, size) in enumerate(zip(self._columns, sizes, strict=True), 1):
                out[at] = nth << 3 | VARINT
                _put(out, at + 1, column[chunk], size)
                at = at + 1 + size
            encoded = out.tobytes()
            pieces: list[bytes] = []
            for start, end, stats in zip(starts, ends.tolist(), self._stats[chunk], strict=True):
                pieces += (encoded[start:end], stats)
            yield b"".join(pieces)

    def _chunks(self) -> Iterator[slice]:
        return (slice(first, first + _AT_ONCE) for first in range(0, len(self._stats), _AT_ONCE))

    def _measure(self, chunk: slice) -> tuple[list[Column], Column]:
        """The bytes of each number of the events, and of each event without what precedes it."""
        sizes = [_size(column[chunk]) for column in self._columns]
        stats = np.fromiter(map(len, self._stats[chunk]), np.int64)
        return sizes, 3 + sum(sizes) + stats


def _size(values: Column) -> Column:
    """The bytes of each varint."""
    sizes = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        larger = values >> bits > 0
        if not larger.any():
            break
        sizes += larger
    return sizes


def _put(out: NDArray[np.uint8], at: Column, values: Column, sizes: Column) -> None:
    """Write each value as a varint of the known size."""
    for nth in range(int(sizes.max(initial=0))):
        those = sizes > nth
        more = (sizes[those] > nth + 1).astype(np.uint8) << 7
        out[at[those] + nth] = (values[those] >> 7 * nth & 0x7F).astype(np.uint8) | more
