"""Numbers that are written in a text, many at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]

WORD = 8  # digits
_MARGIN = 3 * WORD  # bytes before the text, and after it: both are read in words
_MANY = np.uint64  # what words are worked on as
#: factor of the first of two neighbours and of the second, bits to the sum of both, and where sums are kept
_PAIRS = ((10 << 8 | 1, 8, 0x00FF00FF00FF00FF), (100 << 16 | 1, 16, 0x0000FFFF0000FFFF), (10_000 << 32 | 1, 32, None))
#: by their number, the last digits of a word: its last bytes
_LAST = np.array([(0x0F0F0F0F0F0F0F0F << 8 * (WORD - n)) & (1 << 64) - 1 for n in range(WORD + 1)], _MANY)
#: by their number, the first bytes of a word
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], _MANY)


class Text:
    """Lines of text, each with its line feed: where they begin and end, and the numbers in them."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._bytes = np.frombuffer(b"".join((b" " * _MARGIN, text, b" " * _MARGIN)), np.uint8)
        self._words = np.ndarray((len(self._bytes) - WORD + 1,), "<u8", self._bytes.data, 0, (1,))  # at each byte one
        self.end: Column = np.flatnonzero(self._bytes == ord("\n")) - _MARGIN
        self.begin: Column = np.concatenate((np.zeros(1, np.int64), self.end[:-1] + 1))

    def lines(self, first: int, last: int) -> bytes:
        return self.text[self.begin[first] : self.end[last]]

    def numbers(self, end: Column, length: Column) -> Column:
        """The numbers of ``length`` digits, up to 18, that end before ``end``."""
        longest = int(length.max(initial=0))
        if longest <= 1:
            return self._bytes[end + (_MARGIN - 1)] - np.int64(ord("0"))
        found = self._last(end + (_MARGIN - WORD), np.minimum(length, WORD))
        for done in range(WORD, longest, WORD):
            more = self._last(end + (_MARGIN - WORD - done), np.clip(length - done, 0, WORD))
            more *= 10**done
            found += more
        return found

    def _last(self, at: Column, length: Column) -> Column:
        """The numbers of up to eight digits at the end of words: the digits of a word are added up in pairs."""
        word = self._words[at]
        word &= _LAST[length]
        for factors, bits, kept in _PAIRS:
            word *= _MANY(factors)
            word >>= _MANY(bits)
            if kept is not None:
                word &= _MANY(kept)
        return word.view(np.int64)

    def without_digits(self) -> Replaced:
        """The same with all digits replaced by 0."""
        digits = self._bytes - np.uint8(ord("0"))
        digits *= (digits <= 9).view(np.uint8)
        return Replaced(self._bytes - digits, self.begin, self.end)


class Replaced:
    """Lines whose digits are replaced."""

    def __init__(self, text: NDArray[np.uint8], begin: Column, end: Column) -> None:
        self._text = text
        self._begin, self._end = begin + _MARGIN, end + _MARGIN

    def __getitem__(self, line: int) -> bytes:
        return self._text[self._begin[line] : self._end[line]].tobytes()

    def of_length(self, most: int, least: int) -> Iterator[tuple[int, Column]]:
        """Each length up to ``most`` of ``least`` lines or more, and those lines, ascending."""
        length = np.minimum(self._end - self._begin, most + 1).astype(np.uint16)
        order = np.argsort(length, kind="stable")  # by counting: of 16 bits
        length = length[order]
        borders = np.flatnonzero(np.diff(length)) + 1
        for first, past in zip([0, *borders.tolist()], [*borders.tolist(), len(length)], strict=True):
            if past - first >= least and length[first] <= most:
                yield int(length[first]), order[first:past]

    def words(self, lines: Column, length: int) -> NDArray[np.uint64]:
        """Of lines of one length a row each: their bytes, as words, and zeros after them."""
        count = -(-length // WORD)
        kind = np.dtype((np.void, WORD * count))
        every = np.ndarray((len(self._text) - WORD * count + 1,), kind, self._text.data, 0, (1,))  # at each byte
        found = every[self._begin[lines]].view(_MANY).reshape(-1, count)
        found[:, -1] &= _FIRST[length - WORD * (count - 1)]
        return found
