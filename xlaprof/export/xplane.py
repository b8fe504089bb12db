"""XPlane, the profile format of XProf and TensorBoard: its messages, and a writer that streams them.

The schema is ``tsl/profiler/protobuf/xplane.proto`` of openxla/xla. No installable package ships its generated
classes, so they are built here from a descriptor; ``protobuf`` and ``numpy`` are needed.

A space holds planes (a host, a device), a plane lines (a thread, a queue), a line events. A name is stored once per
plane, as metadata that events refer to by id, and so is a text that repeats in stats. Events are kept in columns, with
stats that are equal kept once: a million of them take some ten megabytes, not a gigabyte of message objects.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from . import wire
from .messages import classes

Value = int | float | str | bytes
_INTERNED = 65_536  # different texts that a plane stores once and refers to; further ones are written out
#: The longest profile: XPlane counts picoseconds in 64 bits. About 106 days.
LONGEST_NS = 2**63 // 1000
_INT64 = range(-(2**63), 2**63)
Stats = Mapping[str, Value]

_PROTO = """
message XStat {
  int64 metadata_id = 1;
  oneof value { double double_value = 2; uint64 uint64_value = 3; int64 int64_value = 4; string str_value = 5;
    bytes bytes_value = 6; uint64 ref_value = 7; }
}
message XEvent {
  int64 metadata_id = 1; int64 offset_ps = 2; int64 duration_ps = 3; repeated XStat stats = 4;
}
message XLine {
  int64 id = 1; string name = 2; int64 timestamp_ns = 3; repeated XEvent events = 4; int64 duration_ps = 9;
  int64 display_id = 10; string display_name = 11;
}
message XEventMetadata {
  int64 id = 1; string name = 2; bytes metadata = 3; string display_name = 4; repeated XStat stats = 5;
  repeated int64 child_id = 6;
}
message XStatMetadata {
  int64 id = 1; string name = 2; string description = 3;
}
// A protobuf map is a repeated message of key and value on the wire.
message EventMetadataEntry {
  int64 key = 1; XEventMetadata value = 2;
}
message StatMetadataEntry {
  int64 key = 1; XStatMetadata value = 2;
}
message XPlane {
  int64 id = 1; string name = 2; repeated XLine lines = 3; repeated EventMetadataEntry event_metadata = 4;
  repeated StatMetadataEntry stat_metadata = 5; repeated XStat stats = 6;
}
message XSpace {
  repeated XPlane planes = 1; repeated string errors = 2; repeated string warnings = 3; repeated string hostnames = 4;
}
"""
_MESSAGES = classes("xlaprof.xplane", _PROTO)
XSpace: Any = _MESSAGES["XSpace"]
_XLine, _XPlane = _MESSAGES["XLine"], _MESSAGES["XPlane"]
_INTEGER, _DOUBLE, _REFERENCE = wire.key(4, wire.VARINT), wire.key(2, wire.FIXED64), wire.key(7, wire.VARINT)
_pack_double = struct.Struct("<d").pack
_OFTEN = 128  # smaller numbers come often


class _Lengths(dict[tuple[int, int], bytes]):
    """What precedes a field of bytes, by its number and length."""

    def __missing__(self, field: tuple[int, int]) -> bytes:
        number, length = field
        head = self[field] = wire.key(number, wire.BYTES) + wire.varint(length)
        return head


_LENGTHS = _Lengths()


def _utf8(text: str) -> str:
    """``text`` without the lone surrogates that Python allows and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


class Line:
    """One lane of a plane. Events are added in any order and written sorted, enclosing ones first."""

    def __init__(self, id: int, name: str) -> None:
        self.id = id
        self.name = name
        self._names, self._t, self._dur = array("q"), array("q"), array("q")
        self._stats: list[bytes] = []

    def __len__(self) -> int:
        return len(self._stats)

    def add(self, name: int, t: int, dur: int, stats: bytes = b"") -> None:
        """Add an event with the name ``name`` (an id of :meth:`Plane.name`) and ``stats`` (of :meth:`Plane.stats`).

        ``t``: ns of any clock, the same in a space.
        """
        self._names.append(name)
        self._t.append(t)
        self._dur.append(dur or 1)  # the trace viewer cannot show the stats of an event without length
        self._stats.append(stats)

    def head(self, base: int) -> tuple[bytes, int]:
        """What precedes the events in field 3 of a serialized ``XPlane``, and their bytes; see :meth:`events`."""
        head: bytes = _XLine(id=self.id, name=_utf8(self.name), display_id=self.id).SerializeToString()
        size = wire.Events(*self._columns(base), self._stats).size()
        return wire.key(3, wire.BYTES) + wire.varint(len(head) + size) + head, size

    def events(self, base: int) -> wire.Events:
        """The events in order, relative to ``base``, which is before them all."""
        names, offsets, durations = self._columns(base)
        order = np.lexsort((-durations, offsets))
        return wire.Events(names[order], offsets[order], durations[order], [self._stats[nth] for nth in order])

    def _columns(self, base: int) -> tuple[wire.Column, wire.Column, wire.Column]:
        names, t, dur = (np.frombuffer(column, np.int64) for column in (self._names, self._t, self._dur))
        # The end of a span is exclusive here and inclusive in XProf: one picosecond less keeps neighbours apart.
        return names, (t - base) * 1000, dur * 1000 - 1


class Plane:
    """One row group of a profile: a host with its threads, or a device with its queues."""

    def __init__(self, id: int, name: str, stats: Stats | None = None) -> None:
        self._proto = _XPlane(id=id, name=name)
        self._lines: list[Line] = []
        self._texts: dict[str, int] = {}  # names of stats, and their texts
        self._heads: dict[str, bytes] = {}  # name of a stat -> how it begins
        self._integers: dict[str, bytes] = {}  # the same with an integer, and
        self._doubles: dict[str, bytes] = {}  # with a float
        self._known: dict[tuple[str, Value, type], bytes] = {}  # stats that come often
        self.names: dict[object, int] = {}  # ids of names, or of their keys
        if stats:
            self._proto.MergeFromString(self.stats(stats, number=6))

    def line(self, id: int, name: str) -> Line:
        """A new line; ``id`` orders the lines of a plane."""
        self._lines.append(Line(id, name))
        return self._lines[-1]

    def name(self, name: str, display: str = "", stats: Stats | None = None, key: object = None) -> int:
        """The id under which events carry ``name``; stats given here belong to every one of them.

        Equal names share an id, unless ``key`` tells them apart.
        """
        key = name if key is None else key
        found = self.names.get(key)
        if found is None:
            found = self.names[key] = len(self.names) + 1
            entry = self._proto.event_metadata.add(key=found)
            entry.value.id, entry.value.name, entry.value.display_name = found, _utf8(name), _utf8(display)
            if stats:
                entry.value.MergeFromString(self.stats(stats, number=5))
        return found

    def stats(self, stats: Stats, number: int = 4) -> bytes:
        """``stats`` as they are added to events of this plane; ``number``: of the field that has them."""
        found: list[bytes] = []
        for name, value in stats.items():
            if type(value) is int and _OFTEN <= value < _INT64.stop:
                body = (self._integers.get(name) or self._integer(name)) + wire.varint(value)
            elif type(value) is float:
                body = (self._doubles.get(name) or self._double(name)) + _pack_double(value)
            else:
                known = self._known.get((name, value, type(value)))
                body = self._stat(name, value) if known is None else known
            found += (_LENGTHS[number, len(body)], body)
        return b"".join(found)

    def numbers(self, names: Sequence[str]) -> wire.Numbers:
        """Makes of as many floats as ``names`` what :meth:`stats` makes of a dict of them."""
        heads = [self._head(name) + _DOUBLE for name in names]
        return wire.Numbers([_LENGTHS[4, len(head) + 8] + head for head in heads], "d")

    def write(self, file: BinaryIO, base: int) -> None:
        """Write the plane as field 1 of a serialized ``XSpace``, its lines last."""
        rest: bytes = self._proto.SerializeToString()
        heads = [line.head(base) for line in self._lines]
        size = len(rest) + sum(len(head) + size for head, size in heads)
        file.write(wire.key(1, wire.BYTES) + wire.varint(size) + rest)
        for line, (head, _) in zip(self._lines, heads, strict=True):
            file.write(head)
            file.writelines(line.events(base).encode(4))

    def _stat(self, name: str, value: Value) -> bytes:
        head = self._head(name)
        if isinstance(value, bytes):
            return head + wire.prefixed(6, value)
        if isinstance(value, int) and value in _INT64:
            body = head + _INTEGER + wire.varint(value)
            if 0 <= value < _OFTEN:
                self._known[name, value, type(value)] = body
            return body
        text = str(value)
        if text not in self._texts and len(self._texts) >= _INTERNED:
            return head + wire.prefixed(5, _utf8(text).encode())
        body = self._known[name, value, type(value)] = head + _REFERENCE + wire.varint(self._text(text))
        return body

    def _integer(self, name: str) -> bytes:
        """How a stat with an integer begins."""
        head = self._integers[name] = self._head(name) + _INTEGER
        return head

    def _double(self, name: str) -> bytes:
        """The same with a float."""
        head = self._doubles[name] = self._head(name) + _DOUBLE
        return head

    def _head(self, name: str) -> bytes:
        """How a stat of this name begins."""
        head = self._heads.get(name)
        if head is None:
            head = self._heads[name] = wire.key(1, wire.VARINT) + wire.varint(self._text(name))
        return head

    def _text(self, text: str) -> int:
        """The id under which a text is stored once."""
        found = self._texts.get(text)
        if found is None:
            found = self._texts[text] = len(self._texts) + 1
            entry = self._proto.stat_metadata.add(key=found)
            entry.value.id, entry.value.name = found, _utf8(text)
        return found


def write_space(file: BinaryIO, planes: Iterable[Plane], host: str, base_ns: int, warnings: Iterable[str] = ()) -> None:
    """Write ``planes`` of ``host`` to ``file`` as one serialized ``XSpace``, events relative to moment ``base_ns``.

    XProf shows ``warnings`` at the top of its overview.
    """
    file.write(XSpace(hostnames=[host], warnings=map(_utf8, warnings)).SerializeToString())
    for plane in planes:
        plane.write(file, base_ns)
        del plane  # before the next one is made
