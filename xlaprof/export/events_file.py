"""TensorBoard's event files: curves and pages of text.

Pages are TensorBoard's own messages. Its record writer computes each checksum in Python, which takes longer than all
the rest of an export: curves are encoded here, with the checksums of ``google-crc32c``, which XProf brings along.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from xlaprof.export import wire
from xlaprof.export.scalars import Point
from xlaprof.recording.logfile import private


def write(
    path: Path,
    points: Iterable[Point],
    pages: Iterable[tuple[str, str]],
    unix_ns: Callable[[int], int],
    begun: int,
    ended: int,
) -> int:
    """Write ``points`` to the new event file ``path``; how many values there were.

    ``pages``: tags and Markdown for the Text tab, of a run that ended at ``ended``. ``unix_ns`` turns a moment into the
    wall time that TensorBoard shows.
    """
    # Imported when needed: it takes a quarter of a second.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb

    wall, step, summary = wire.key(1, wire.FIXED64), wire.key(2, wire.VARINT), wire.key(5, wire.BYTES)
    summaries: dict[tuple[str, ...], wire.Numbers] = {}  # by the tags
    count = 0
    with open(path, "xb", opener=private) as file:
        first = Event(wall_time=unix_ns(begun) / 1e9, file_version="brain.Event:2")
        _record(file, first.SerializeToString())
        for point in points:
            encode = summaries.get(point.tags)
            if encode is None:
                encode = summaries[point.tags] = wire.Numbers(list(map(_head, point.tags)), "f")
            values = encode(point.values)
            count += len(point.values)
            at = wall + struct.pack("<d", unix_ns(point.t) / 1e9) + step + wire.varint(point.step)
            _record(file, at + summary + wire.varint(len(values)) + values)
        for tag, page in pages:
            text = Event(wall_time=unix_ns(ended) / 1e9, summary=text_pb(tag, page))
            _record(file, text.SerializeToString())
    return count


def _head(tag: str) -> bytes:
    """The value of a tag in a summary, up to its number."""
    name = wire.prefixed(1, tag.encode(errors="replace")) + wire.key(2, wire.FIXED32)
    return wire.prefixed(1, name + bytes(4))[:-4]


def _record(file: BinaryIO, data: bytes) -> None:
    """A record of TensorFlow: length, its checksum, data, their checksum."""
    length = struct.pack("<Q", len(data))
    file.write(b"".join((length, _checksum(length), data, _checksum(data))))


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
