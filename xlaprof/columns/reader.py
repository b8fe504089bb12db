"""From the bytes of a log to batches: lines that look like those before are read at once, the others with care.

A line is like another if it is the same with all digits replaced. So its numbers are where the other's are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xlaprof.events import AnyEvent

from .lines import Decoded, Decoder, Lines, Shaped
from .numbers import WORD, Column, Flags, Replaced, Text
from .shapes import RUN, Shape, learn

_OFTEN = 8  # lines of a form in a text: it is learnt
_FORMS, _LIKE, _SHAPES = 512, 8_192, 64  # known at most: forms; lines that others are like; shapes of a form
_LONGEST = 8_192  # bytes of a line
_MANY, _TRIES = 64, 16  # lines that are compared at once, and with how many of their length
_UNKNOWN, _ODD = -1, 0  # instead of the number of a line that others are like

_ZEROS = re.compile(b"0+")


class LineReader:
    """Reads the lines of one log. ``careful`` reads those that are not like others, and keeps account of damage."""

    def __init__(self, decoder: Decoder, careful: Callable[[bytes], Sequence[AnyEvent]]) -> None:
        self._decoder, self._careful = decoder, careful
        self._like: dict[bytes, int] = {}  # line without its digits -> its number
        self._form_of = np.zeros(_LIKE, np.int64)  # by that number
        self._row_of = np.zeros(_LIKE, np.int64)  # in the form's tables
        self._forms: dict[bytes, Form | None] = {}  # by the text with one 0 for each run of digits
        self._numbered: list[Form] = []  # from number 1 on

    def read(self, text: bytes) -> Sequence[AnyEvent]:
        """The events of whole lines."""
        if not text:
            return []
        lines = Text(text)
        like = self._numbers_of(lines)
        forms, rows = self._form_of[like], self._row_of[like]
        shaped: list[Shaped] = []
        order = np.argsort(forms.astype(np.uint16), kind="stable")
        borders = np.searchsorted(forms[order], np.arange(1, len(self._numbered) + 2)).tolist()
        for form, first, past in zip(self._numbered, borders[:-1], borders[1:], strict=True):
            if past > first:
                those = order[first:past]
                shaped += form.shaped(lines, those, rows[those])
        if not shaped:
            return self._careful(text)
        known = np.zeros(len(like), np.bool_)
        for some in shaped:
            known[some.lines] = True
        return Lines(self._decoded(lines, known), shaped)

    def _numbers_of(self, lines: Text) -> Column:
        """Of each line the number of what it is like; the forms that come often are learnt."""
        texts = lines.without_digits()
        numbers = self._of_many(texts, len(lines.end))
        left = np.flatnonzero(numbers == _UNKNOWN).tolist()
        text_of = dict(zip(left, map(texts.__getitem__, left), strict=True))
        numbers[left] = [self._like.get(text, _UNKNOWN) for text in text_of.values()]
        new = [line for line, number in zip(left, numbers[left].tolist(), strict=True) if number == _UNKNOWN]
        if new and len(self._like) < _LIKE - 1:
            one = {text_of[line]: line for line in new if len(text_of[line]) <= _LONGEST}
            forms = {text: _ZEROS.sub(b"0", text) for text in one}
            often = Counter(forms.get(text_of[line]) for line in new)
            for text, key in forms.items():
                if key not in self._forms and often[key] >= _OFTEN and len(self._forms) < _FORMS:
                    self._forms[key] = self._learnt(lines.lines(one[text], one[text]))
                if key in self._forms and len(self._like) < _LIKE - 1:
                    self._add(text, self._forms[key])
            numbers[new] = [self._like.get(text_of[line], _ODD) for line in new]
        return np.maximum(numbers, _ODD)

    def _of_many(self, texts: Replaced, count: int) -> Column:
        """The same without looking at each line by itself: of those that are like many others of their length."""
        numbers = np.full(count, _UNKNOWN)
        for length, those in texts.of_length(_LONGEST, _MANY):
            words = texts.words(those, length) if length else None
            for _ in range(_TRIES):
                if words is None or len(those) < _MANY:
                    break
                same = (words == words[0]).all(axis=1)
                numbers[those[same]] = self._like.get(texts[those[0]], _UNKNOWN)
                those, words = those[~same], words[~same]
        return numbers

    def _learnt(self, line: bytes) -> Form | None:
        shape = learn(line, self._decoder.decode)
        if shape is None:
            return None
        self._numbered.append(form := Form(len(self._numbered) + 1, shape, self._decoder))
        return form

    def _add(self, text: bytes, form: Form | None) -> None:
        row = form.add(text) if form is not None else None
        if form is None or row is None:
            self._like[text] = _ODD
            return
        self._like[text] = number = len(self._like) + 1
        self._form_of[number], self._row_of[number] = form.number, row

    def _decoded(self, lines: Text, known: Flags) -> Decoded:
        """The events of all lines in their order."""
        counts = known.astype(np.int64)
        found = []
        turns = np.flatnonzero(np.diff(known, prepend=True, append=True)).tolist()
        for first, past in zip(turns[::2], turns[1::2], strict=True):
            events = self._careful(lines.lines(first, past - 1) + b"\n")
            counts[first] = len(events)
            found.append((first, events))
        before = np.cumsum(counts) - counts
        line = np.full(int(counts.sum()), -1)
        line[before[known]] = np.flatnonzero(known)
        odd = {int(before[first]) + n: event for first, events in found for n, event in enumerate(events)}
        return Decoded(lines, line, odd, self._decoder)


class Form:
    """Lines with the same text between their digits: of one shape, or several that differ in digits of a text."""

    def __init__(self, number: int, first: Shape, decoder: Decoder) -> None:
        self.number = number
        self._first, self._decoder = first, decoder
        self._shapes: dict[tuple[int, ...], Shape | None] = {}  # by those digits
        self._end = np.zeros((len(first.most), 0), np.int64)  # of each run of digits a row, a column for each
        self._length = np.zeros((len(first.most), 0), np.int64)  # line that others are like

    def add(self, text: bytes) -> int | None:
        """Know where the numbers are in lines that are like ``text``; None: one of these would be too long."""
        spans = np.array([run.span() for run in RUN.finditer(text)]).T
        length = spans[1] - spans[0]
        if (length > self._first.most).any():
            return None
        self._end = np.concatenate((self._end, spans[1][:, None]), axis=1)
        self._length = np.concatenate((self._length, length[:, None]), axis=1)
        return self._end.shape[1] - 1

    def _numbers(self, text: Text, lines: Column, rows: Column) -> tuple[Column, Flags]:
        """The numbers of lines, a row for each run of digits; and which lines have no number such as 007."""
        begin = text.begin[lines]
        which = rows[:1] if (rows == rows[0]).all() else rows  # of all, or of each
        numbers, good = np.empty((len(self._end), len(lines)), np.int64), np.ones(len(lines), np.bool_)
        longest = self._length[:, which].max(axis=1)
        words = (longest > 1).astype(np.int64) + (longest > WORD)  # that each run takes; 0: it is one digit
        for runs in filter(len, (np.flatnonzero(words == count) for count in range(3))):
            length = self._length[runs[:, None], which]
            numbers[runs] = found = text.numbers(begin + self._end[runs[:, None], which], length)
            if words[runs[0]]:
                good &= (found >= np.where(length > 1, 10 ** (length - 1), 0)).all(axis=0)
        return numbers, good

    def shaped(self, text: Text, lines: Column, rows: Column) -> Iterator[Shaped]:
        """Those of the lines that are certainly events. ``rows``: the number of what each is like."""
        numbers, good = self._numbers(text, lines, rows)
        left, fixed = np.flatnonzero(good), numbers[list(self._first.fixed)]
        for _ in range(_SHAPES):
            if not len(left):
                break
            one = fixed[:, left[:1]]
            same = (fixed[:, left] == one).all(axis=0)
            those, left = left[same], left[~same]
            shape = self._shape(tuple(one[:, 0].tolist()), text.lines(lines[those[0]], lines[those[0]]))
            if shape is None:
                continue
            whole = len(those) == len(lines)
            some = Shaped(shape, lines, numbers) if whole else Shaped(shape, lines[those], numbers[:, those])
            if ascending := [shape.fields[field] for field in shape.event.ascending]:
                some = some.where(np.all(some.numbers[ascending[:-1]] <= some.numbers[ascending[1:]], axis=0))
            yield some

    def _shape(self, digits: tuple[int, ...], line: bytes) -> Shape | None:
        if digits not in self._shapes and len(self._shapes) < _SHAPES:
            shape = learn(line, self._decoder.decode)
            alike = shape is not None and (shape.fixed, shape.most) == (self._first.fixed, self._first.most)
            self._shapes[digits] = shape if alike else None
        return self._shapes.get(digits)
