"""From the bytes of a log to batches: lines that look like those before are read at once, the others with care.

A line is like another if it is the same with all digits replaced. So its numbers are where the other's are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import numpy as np

from xlaprof.events import AnyEvent

from .lines import Decoded, Decoder, Lines, Shaped
from .numbers import Column, Flags, Text
from .shapes import RUN, Shape, learn

_OFTEN = 8  # lines of a form in a text: it is learnt
_FORMS, _LIKE, _SHAPES = 512, 8_192, 64  # known at most: forms; lines that others are like; shapes of a form
_LONGEST = 8_192  # bytes of a line
_UNKNOWN, _ODD = -1, 0  # instead of the number of a line that others are like

_REPLACED = bytes.maketrans(b"123456789", b"000000000")
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
        for number, form in enumerate(self._numbered, 1):
            those = np.flatnonzero(forms == number)
            if len(those):
                shaped += form.shaped(lines, those, rows[those])
        if not shaped:
            return self._careful(text)
        known = np.zeros(len(like), np.bool_)
        for some in shaped:
            known[some.lines] = True
        return Lines(self._decoded(lines, known), shaped)

    def _numbers_of(self, lines: Text) -> Column:
        """Of each line the number of what it is like; the forms that come often are learnt."""
        texts = lines.text.translate(_REPLACED).split(b"\n")[:-1]
        numbers = np.fromiter(map(self._like.get, texts, repeat(_UNKNOWN)), np.int64, len(texts))
        new = np.flatnonzero(numbers == _UNKNOWN).tolist()
        if new and len(self._like) < _LIKE - 1:
            one = {texts[line]: line for line in new if len(texts[line]) <= _LONGEST}
            forms = {text: _ZEROS.sub(b"0", text) for text in one}
            often = Counter(forms.get(texts[line]) for line in new)
            for text, key in forms.items():
                if key not in self._forms and often[key] >= _OFTEN and len(self._forms) < _FORMS:
                    self._forms[key] = self._learnt(lines.lines(one[text], one[text]))
                if key in self._forms and len(self._like) < _LIKE - 1:
                    self._add(text, self._forms[key])
            numbers[new] = [self._like.get(texts[line], _ODD) for line in new]
        return np.maximum(numbers, _ODD)

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

    def shaped(self, text: Text, lines: Column, rows: Column) -> Iterator[Shaped]:
        """Those of the lines that are certainly events. ``rows``: the number of what each is like."""
        begin, length = text.begin[lines], self._length
        numbers = np.stack(
            [text.numbers(begin + end[rows], each[rows]) for end, each in zip(self._end, length, strict=True)]
        )
        least = np.where(length > 1, 10 ** (length - 1), 0)  # 007 is no number
        good = (numbers >= np.take(least, rows, axis=1)).all(axis=0)
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
