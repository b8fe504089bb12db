"""XPlane, the profile format of XProf and TensorBoard: its messages, and a writer that streams them.

The schema is ``tsl/profiler/protobuf/xplane.proto`` of openxla/xla. No installable package ships its generated
classes, so they are built here from a descriptor; only ``protobuf`` is needed.

A space holds planes (a host, a device), a plane lines (a thread, a queue), a line events. A name is stored once per
plane, as metadata that events refer to by id, and so is a text that repeats in stats. Events are encoded as they
come: a million of them are a hundred megabytes of bytes, not a gigabyte of message objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from .messages import classes

Value = int | float | str
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
_XStat, _XEvent, _XLine, _XPlane = (_MESSAGES[name] for name in ("XStat", "XEvent", "XLine", "XPlane"))


def _utf8(text: str) -> str:
    """``text`` without the lone surrogates that Python allows and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _key(number: int, size: int) -> bytes:
    """The bytes that precede ``size`` bytes of length-delimited field ``number`` on the wire."""
    key = bytearray((number << 3 | 2,))
    while size > 0x7F:
        key.append(size & 0x7F | 0x80)
        size >>= 7
    key.append(size)
    return bytes(key)


class Line:
    """One lane of a plane. Events are added in any order and written sorted, enclosing ones first."""

    def __init__(self, plane: Plane, id: int, name: str) -> None:
        self.id = id
        self.name = name
        self._plane = plane
        self._events: list[tuple[int, int, bytes]] = []

    def add(self, name: int, t: int, dur: int, stats: Stats | None = None) -> None:
        """Add an event with the name ``name`` (an id of :meth:`Plane.name`). ``t``: ns of any clock, the same in a
        space."""
        dur = max(dur, 1)  # the trace viewer cannot show the stats of an event without length
        event = _XEvent(metadata_id=name)
        if stats:
            self._plane._fill(event.stats, stats)
        self._events.append((t, -dur, event.SerializeToString()))

    def encode(self, base: int) -> bytes:
        """The line as a serialized ``XLine``, its events relative to ``base``, which is before all of them."""
        self._events.sort(key=lambda e: e[:2])
        head: bytes = _XLine(id=self.id, name=self.name, display_id=self.id).SerializeToString()
        encoded = [head]
        for t, minus_dur, rest in self._events:
            # The end of a span is exclusive here and inclusive in XProf: one picosecond less keeps neighbours apart.
            duration = -minus_dur * 1000 - 1
            # Two serialized pieces of a message, one after the other, are the merged message.
            span: bytes = _XEvent(offset_ps=(t - base) * 1000, duration_ps=duration).SerializeToString()
            encoded.append(_key(4, len(span) + len(rest)) + span + rest)
        return b"".join(encoded)


class Plane:
    """One row group of a profile: a host with its threads, or a device with its queues."""

    def __init__(self, id: int, name: str, stats: Stats | None = None) -> None:
        self._proto = _XPlane(id=id, name=name)
        self._lines: list[Line] = []
        self._stat_ids: dict[str, int] = {}
        self._name_ids: dict[object, int] = {}
        if stats:
            self._fill(self._proto.stats, stats)

    def line(self, id: int, name: str) -> Line:
        """A new line; ``id`` orders the lines of a plane."""
        self._lines.append(Line(self, id, name))
        return self._lines[-1]

    def name(self, name: str, display: str = "", stats: Stats | None = None, key: object = None) -> int:
        """The id under which events carry ``name``; stats given here belong to every one of them.

        Equal names share an id, unless ``key`` tells them apart.
        """
        key = name if key is None else key
        found = self._name_ids.get(key)
        if found is None:
            found = self._name_ids[key] = len(self._name_ids) + 1
            entry = self._proto.event_metadata.add(key=found)
            entry.value.id, entry.value.name, entry.value.display_name = found, _utf8(name), display
            if stats:
                self._fill(entry.value.stats, stats)
        return found

    def encode(self, base: int) -> Iterable[bytes]:
        """The plane as pieces of a serialized ``XPlane``, lines last."""
        yield self._proto.SerializeToString()
        for line in self._lines:
            encoded = line.encode(base)
            yield _key(3, len(encoded))
            yield encoded

    def _stat(self, name: str) -> int:
        found = self._stat_ids.get(name)
        if found is None:
            found = self._stat_ids[name] = len(self._stat_ids) + 1
            entry = self._proto.stat_metadata.add(key=found)
            entry.value.id, entry.value.name = found, _utf8(name)
        return found

    def _fill(self, target: Any, stats: Stats) -> None:
        for name, value in stats.items():
            if isinstance(value, int) and value not in _INT64:
                value = str(value)
            stat = target.add(metadata_id=self._stat(name))
            if isinstance(value, str):
                if value in self._stat_ids or len(self._stat_ids) < _INTERNED:
                    stat.ref_value = self._stat(value)
                else:
                    stat.str_value = _utf8(value)
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.int64_value = value


def write_space(file: BinaryIO, planes: Iterable[Plane], host: str, base_ns: int) -> None:
    """Write ``planes`` of ``host`` to ``file`` as one serialized ``XSpace``, events relative to moment ``base_ns``."""
    file.write(XSpace(hostnames=[host]).SerializeToString())
    for plane in planes:
        pieces = list(plane.encode(base_ns))
        file.write(_key(1, sum(map(len, pieces))))
        file.writelines(pieces)
