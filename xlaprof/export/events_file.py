"""TensorBoard's event files, written with TensorBoard's own messages and record writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from xlaprof.errors import UserError
from xlaprof.export.scalars import Point
from xlaprof.recording.logfile import private


def require() -> None:
    """Raise a :class:`UserError` where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise UserError('the export to TensorBoard needs tensorboard: pip install "xlaprof[tensorboard]"')


def write(path: Path, points: Iterable[Point], unix_ns: Callable[[int], int]) -> int:
    """Write ``points`` to the new event file ``path``; how many there were.

    ``unix_ns`` turns a moment of a point into the wall time that TensorBoard shows.
    """
    # Imported when needed: it takes a quarter of a second.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    count = 0
    with open(path, "xb", opener=private) as file:
        writer = RecordWriter(file)
        first = True
        for (step, t), together in groupby(points, key=lambda p: (p.step, p.t)):
            if first:
                writer.write(Event(wall_time=unix_ns(t) / 1e9, file_version="brain.Event:2").SerializeToString())
                first = False
            values = [Summary.Value(tag=p.tag, simple_value=p.value) for p in together]
            count += len(values)
            event = Event(wall_time=unix_ns(t) / 1e9, step=step, summary=Summary(value=values))
            writer.write(event.SerializeToString())
        writer.flush()
    return count
