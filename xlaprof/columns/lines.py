"""Lines of a log as a batch of events whose numbers are at hand; an event is decoded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, cached_property
from typing import Any, NamedTuple, overload

import msgspec
import numpy as np

from xlaprof.events import AnyEvent

from .kinds import CODES, FIELDS, FLAGS, TABLES, Alike, Columns, Kind, Kinds, merged, of_events
from .numbers import Column, Flags, Text
from .shapes import Shape

Decoder = msgspec.json.Decoder[AnyEvent]


class Shaped(NamedTuple):
    """Lines of one shape."""

    shape: Shape
    lines: Column  # their numbers, ascending
    numbers: Column  # a row for each run of digits, a column for each line

    def where(self, which: Flags) -> Shaped:
        """Those for which ``which`` is true."""
        return self if which.all() else Shaped(self.shape, self.lines[which], self.numbers[:, which])


class Decoded(Sequence[AnyEvent]):
    """The events of some lines, each decoded when it is asked for."""

    def __init__(self, text: Text, line: Column, odd: Mapping[int, AnyEvent], decoder: Decoder) -> None:
        self._text, self._decoder = text, decoder
        self.line = line  # of each event; -1: it is one of ``odd``
        self.odd = odd  # by position, ascending

    def __len__(self) -> int:
        return len(self.line)

    @overload
    def __getitem__(self, at: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyEvent]: ...
    def __getitem__(self, at: int | slice) -> AnyEvent | Sequence[AnyEvent]:
        if isinstance(at, slice):
            lines = self.line[at]
            if len(lines) and lines[0] >= 0 and (np.diff(lines) == 1).all():
                return self._decoder.decode_lines(self._text.lines(lines[0], lines[-1]))
            return [self[one] for one in range(*at.indices(len(self)))]
        line = int(self.line[at])
        return self.odd[range(len(self))[at]] if line < 0 else self._decoder.decode(self._text.lines(line, line))

    def __iter__(self) -> Iterator[AnyEvent]:
        return iter(self[:])


class Lines(Sequence[AnyEvent]):
    """The events of some lines of a log, and their columns."""

    def __init__(self, events: Decoded, shaped: Sequence[Shaped]) -> None:
        self._events, self._shaped = events, shaped

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, at: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyEvent]: ...
    def __getitem__(self, at: int | slice) -> AnyEvent | Sequence[AnyEvent]:
        return self._events[at]

    def __iter__(self) -> Iterator[AnyEvent]:
        return iter(self._events)

    @property
    def present(self) -> set[type]:
        """The kinds of the events."""
        return {type(some.shape.event) for some in self._shaped} | set(map(type, self._events.odd.values()))

    def of_kinds(self, kinds: Set[type]) -> Iterator[AnyEvent]:
        """The events of some kinds, in order: only they are decoded."""
        here = [self._place[some.lines] for some in self._shaped if type(some.shape.event) in kinds]
        odd = [at for at, event in self._events.odd.items() if type(event) in kinds]
        return map(self._events.__getitem__, np.sort(np.concatenate((*here, np.array(odd, np.int64)))).tolist())

    @cached_property
    def _place(self) -> Column:
        """By the number of a line where its event is."""
        line = self._events.line
        shaped = np.flatnonzero(line >= 0)
        place = np.zeros(int(line.max()) + 1, np.int64)
        place[line[shaped]] = shaped
        return place

    @cached_property
    def columns(self) -> Columns:
        """All numbers of the events."""
        line, odd = self._events.line, self._events.odd
        codes = np.zeros(len(line), np.int64)
        parts: dict[type, list[Kind]] = {}
        for some in self._shaped:
            kind, at = type(some.shape.event), self._place[some.lines]
            codes[at] = CODES.get(kind, 0)
            if kind in CODES:
                parts.setdefault(kind, []).append(self._kind(kind, some, at))
        if odd:
            places, beside = np.array(list(odd)), of_events(list(odd.values()))
            codes[places] = beside.codes
            for kind, rare in beside.kinds.items():
                if len(rare):
                    parts.setdefault(kind, []).append(Kind(self._events, places[rare.at], rare.columns, rare.tables))
        kinds = _none() | {kind: merged(self._events, some) for kind, some in parts.items()}
        return Columns(self._events, codes, kinds)  # not ``self``: what refers to itself is freed late

    def _kind(self, kind: type, some: Shaped, at: Column) -> Kind:
        shape, numbers = some.shape, some.numbers
        columns = {
            field: numbers[shape.fields[field]] if field in shape.fields else np.full(len(at), shape.constants[field])
            for field in FIELDS.get(kind, ())
        }
        columns |= {name: np.full(len(at), int(flag(shape.event))) for name, flag in FLAGS.get(kind, {}).items()}
        tables = {
            field: [Alike(table.keys, np.arange(len(at)), numbers[table.runs].T)] if table is not None else []
            for field, table in ((field, shape.tables.get(field)) for field in TABLES.get(kind, ()))
        }
        return Kind(self._events, at, columns, tables)


@cache
def _none() -> Kinds:
    return of_events(()).kinds


def columns_of(batch: Sequence[Any]) -> Columns:
    """The columns of a batch of any sort."""
    return batch.columns if isinstance(batch, Lines) else of_events(batch)
