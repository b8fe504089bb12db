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

from google.protobuf import descriptor_pb2

from .messages import Schema, classes

#: What a stat may hold. Texts are stored once and referred to, as long as they are not too many different ones.
Value = int | float | str
_INTERNED = 65_536  # different texts per plane; beyond that they are written out
#: What a profile may span: XPlane counts picoseconds in 64 bits. About 106 days.
LONGEST_NS = 2**63 // 1000
_INT64 = range(-(2**63), 2**63)
Stats = Mapping[str, Value]

_Field = descriptor_pb2.FieldDescriptorProto
_INT, _UINT = _Field.TYPE_INT64, _Field.TYPE_UINT64
_DOUBLE, _STRING, _BYTES = _Field.TYPE_DOUBLE, _Field.TYPE_STRING, _Field.TYPE_BYTES

_SCHEMA: Schema = {
    "XStat": {
        "metadata_id": (1, _INT, False),
        "double_value": (2, _DOUBLE, False),
        "uint64_value": (3, _UINT, False),
        "int64_value": (4, _INT, False),
        "str_value": (5, _STRING, False),
        "bytes_value": (6, _BYTES, False),
        "ref_value": (7, _UINT, False),
    },
    "XEvent": {
        "metadata_id": (1, _INT, False),
        "offset_ps": (2, _INT, False),
        "duration_ps": (3, _INT, False),
        "stats": (4, "XStat", True),
    },
    "XLine": {
        "id": (1, _INT, False),
        "name": (2, _STRING, False),
        "timestamp_ns": (3, _INT, False),
        "events": (4, "XEvent", True),
        "duration_ps": (9, _INT, False),
        "display_id": (10, _INT, False),
        "display_name": (11, _STRING, False),
    },
    "XEventMetadata": {
        "id": (1, _INT, False),
        "name": (2, _STRING, False),
        "metadata": (3, _BYTES, False),
        "display_name": (4, _STRING, False),
        "stats": (5, "XStat", True),
        "child_id": (6, _INT, True),
    },
    "XStatMetadata": {
        "id": (1, _INT, False),
        "name": (2, _STRING, False),
        "description": (3, _STRING, False),
    },
    # A protobuf map is a repeated message of key and value on the wire.
    "EventMetadataEntry": {"key": (1, _INT, False), "value": (2, "XEventMetadata", False)},
    "StatMetadataEntry": {"key": (1, _INT, False), "value": (2, "XStatMetadata", False)},
    "XPlane": {
        "id": (1, _INT, False),
        "name": (2, _STRING, False),
        "lines": (3, "XLine", True),
        "event_metadata": (4, "EventMetadataEntry", True),
        "stat_metadata": (5, "StatMetadataEntry", True),
        "stats": (6, "XStat", True),
    },
    "XSpace": {
        "planes": (1, "XPlane", True),
        "errors": (2, _STRING, True),
        "warnings": (3, _STRING, True),
        "hostnames": (4, _STRING, True),
    },
}
_VALUES = [name for name in _SCHEMA["XStat"] if name != "metadata_id"]
_MESSAGES = classes("xlaprof.xplane", _SCHEMA, oneofs={"XStat": ("value", _VALUES)})
XSpace: Any = _MESSAGES["XSpace"]
_XStat, _XEvent, _XLine, _XPlane = (_MESSAGES[name] for name in ("XStat", "XEvent", "XLine", "XPlane"))


def _utf8(text: str) -> str:
    """``text`` without the lone surrogates that Python allows and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _key(number: int, size: int) -> bytes:
    """What precedes ``size`` bytes of length-delimited field ``number`` on the wire."""
    key = bytearray((number << 3 | 2,))
    while size > 0x7F:
        key.append(size & 0x7F | 0x80)
        size >>= 7
    key.append(size)
    return bytes(key)


class Line:
    """One lane of a plane. Events may come in any order: they are written sorted, enclosing ones first."""

    def __init__(self, plane: Plane, id: int, name: str) -> None:
        self.id = id
        self.name = name
        self._plane = plane
        self._events: list[tuple[int, int, bytes]] = []

    def add(self, name: int, t: int, dur: int, stats: Stats | None = None) -> None:
        """Add an event called ``name`` (an id of :meth:`Plane.name`) at ``t``; ns of any clock, one for a space."""
        dur = max(dur, 1)  # the trace viewer cannot show the stats of an event without length
        event = _XEvent(metadata_id=name)
        if stats:
            self._plane._fill(event.stats, stats)
        self._events.append((t, -dur, event.SerializeToString()))

    def encode(self, base: int) -> bytes:
        """The line as a serialized ``XLine``, its events relative to ``base``, which none is before."""
        self._events.sort(key=lambda e: e[:2])
        head: bytes = _XLine(id=self.id, name=self.name, display_id=self.id).SerializeToString()
        encoded = [head]
        for t, minus_dur, rest in self._events:
            # Here a span ends before its end, in XProf it ends with it: a picosecond keeps neighbours apart.
            duration = -minus_dur * 1000 - 1
            # Two pieces of a message in sequence are the message merged.
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
