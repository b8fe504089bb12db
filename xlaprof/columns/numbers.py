"""Numbers that are written in a text, many at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]

_WORD = 8  # digits
_MARGIN = 2 * _WORD  # bytes before the text: a number is read in words, from its last digit backwards
_MANY = np.uint64  # what words are worked on as
#: factor of the first of two neighbours, bits to the second, and where their sum is kept
_PAIRS = ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF))


class Text:
    """Lines of text, each with its line feed: where they begin and end, and the numbers in them."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._bytes = np.frombuffer(b" " * _MARGIN + text, np.uint8)
        self._words = np.ndarray((len(self._bytes) - _WORD + 1,), "<u8", self._bytes.data, 0, (1,))  # at each byte one
        self.end: Column = np.flatnonzero(self._bytes == ord("\n")) - _MARGIN
        self.begin: Column = np.concatenate((np.zeros(1, np.int64), self.end[:-1] + 1))

    def lines(self, first: int, last: int) -> bytes:
        return self.text[self.begin[first] : self.end[last]]

    def numbers(self, end: Column, length: Column) -> Column:
        """The numbers of ``length`` digits, up to 18, that end before ``end``."""
        longest = int(length.max(initial=0))
        if longest <= 1:
            return self._bytes[end + (_MARGIN - 1)] - np.int64(ord("0"))
        found = self._last(end + _MARGIN, length)
        for done in range(_WORD, longest, _WORD):
            found += self._last(end + (_MARGIN - done), np.maximum(length - done, 0)) * 10**done
        return found

    def _last(self, end: Column, length: Column) -> Column:
        """The numbers of up to eight digits before each ``end``: the digits of a word are added up in pairs."""
        word = self._words[end - _WORD]
        word &= _MANY(0x0F0F0F0F0F0F0F0F)
        blank = (_WORD * np.maximum(_WORD - length, 0)).view(_MANY)  # bits before the first digit
        word >>= blank
        word <<= blank  # of 64 bits nothing is left
        for factor, bits, kept in _PAIRS:
            following = word >> _MANY(bits)
            word *= _MANY(factor)
            word += following
            word &= _MANY(kept)
        return word.view(np.int64)
