"""Events of a recording as rows of a timeline: what each thread of the host did, transfers, what each device ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from xlaprof import events as ev
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import culprit
from xlaprof.analysis.timeline.host import CAUSES, GLIMPSE, OTHER, SCOPE, WAIT
from xlaprof.analysis.timeline.idle import Cause, Seen
from xlaprof.analysis.timeline.spans import Spans
from xlaprof.text.quantities import plural, size_text

#: the rows, as they are drawn: the first number of a key. The second is a thread or a device, the third a depth.
STEPS, SCOPES, HOST, SEEN, TRANSFERS, DEVICE = range(6)

_DEEPEST = 12  # nesting of scopes: deeper ones share a row
_THREADS = 12  # further ones share a row
_DEVICES = 16
_LATEST = 1 << 60  # ns: later moments come from a damaged log

#: state of a sample -> what it is called
_STATES = {
    "data": "data wait", "checkpoint": "checkpoint", "gil": "waiting", "wait": "waiting", "cpu": "waiting",
    "torch": "tracing", "import": "import",
}  # fmt: skip


class Kind(NamedTuple):
    """What is drawn alike: a part of a step (``xlaprof.text.parts``), and a name, where several are told apart."""

    part: str
    name: int = 0  # Text id


class Told(NamedTuple):
    """What is known of one stretch."""

    stack: int = 0  # Stack id
    text: str = ""
    op: int = 0  # Text id
    after: int = 0  # Stack id of the line after it, of plain Python


class Lanes:
    """A fold over the events of one recording: :attr:`spans` by (row, thread or device, depth)."""

    def __init__(self) -> None:
        self.spans: Spans[tuple[int, int, int], Kind] = Spans()
        self.threads: dict[int, str] = {}
        self.uploads: dict[int, list[int]] = {}  # Stack id -> [uploads, ns, bytes]
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.Thread: self._thread,
            ev.Step: lambda e: self._add(STEPS, e, Kind("step", e.name), Told(text=f"{e.num}")),
            ev.StepDigest: self._digest,
            ev.Scope: self._scope,
            ev.Compile: self._compile,
            ev.DynamoCompile: self._dynamo,
            ev.JitCompile: lambda e: self._add(HOST, e, Kind("compile"), Told(e.stack, "jit", e.func)),
            ev.GraphBreak: lambda e: self._add(HOST, e, Kind("graph break"), Told(e.stack, e.reason)),
            ev.Barrier: self._barrier,
            ev.TransferFromDevice: self._read,
            ev.TransferToDevice: self._upload,
            ev.DeviceWait: lambda e: self._add(HOST, e, Kind("transfer wait"), Told(e.stack, "wait for the device")),
            ev.Fallback: lambda e: self._add(HOST, e, Kind("fallback"), Told(e.stack, "", e.op)),
            ev.Gc: lambda e: self._add(HOST, e, Kind("garbage collection"), Told(e.stack)),
            ev.DataWait: lambda e: self._add(HOST, e, Kind("data wait"), Told(e.stack)),
            ev.Hole: lambda e: self._add(HOST, e, Kind("python"), Told(e.before, after=e.after)),
            ev.Sample: self._sample,
            ev.Look: self._sample,
            ev.Execute: self._execute,
        }

    def feed(self, event: Any) -> None:
        """Draw ``event``, if it took time."""
        draw = self._handlers.get(type(event))
        if draw is not None:
            draw(event)

    def _add(self, row: int, event: Any, kind: Kind, told: Told, depth: int = 0) -> None:
        start = event.t
        tid = getattr(event, "tid", 1)
        tid = tid if tid <= _THREADS else _THREADS + 1
        self._put((row, tid, depth), start, start + getattr(event, "dur", 0), kind, told)

    def _put(self, key: tuple[int, int, int], start: int, end: int, kind: Kind, told: Told) -> None:
        if start <= end < _LATEST:
            self.spans.add(key, start, end, kind, told)

    def _thread(self, event: ev.Thread) -> None:
        if event.tid <= _THREADS:
            self.threads[event.tid] = event.name

    def _digest(self, event: ev.StepDigest) -> None:
        self._add(STEPS, event, Kind("step", event.name), Told(text=f"{event.num}, recorded as sums"))
        if event.busy:
            text = f"{plural(event.executions, 'execution')} of a step recorded as sums: when is not known"
            self._put((DEVICE, 0, 0), event.t, event.t + min(event.busy, event.dur), Kind("device"), Told(text=text))

    def _scope(self, event: ev.Scope) -> None:
        told = Told(event.stack, f"left by {event.error}" if event.error else "")
        self._add(SCOPES, event, Kind("named scopes", event.name), told, min(event.depth, _DEEPEST))

    def _compile(self, event: ev.Compile) -> None:
        cached = ", from the persistent cache" if event.cached else ""
        text = f"graph {event.program}: {plural(event.ops, 'operation')}{cached}"
        self._add(HOST, event, Kind("compile"), Told(event.stack, text))

    def _dynamo(self, event: ev.DynamoCompile) -> None:
        text = f"torch.compile {event.compile}: {plural(event.ops, 'operation')}"
        self._add(HOST, event, Kind("compile"), Told(event.stack, text, event.func))

    def _barrier(self, event: ev.Barrier) -> None:
        text = f"barrier ({event.trigger}): {plural(event.ops, 'operation')}"
        self._add(HOST, event, Kind("dispatch"), Told(event.stack, text))

    def _read(self, event: ev.TransferFromDevice) -> None:
        told = Told(event.stack, f"from the device, {size_text(event.bytes)}", event.op)
        self._add(HOST, event, Kind("transfer wait"), told)
        self._add(TRANSFERS, event, Kind("transfer wait"), told)

    def _upload(self, event: ev.TransferToDevice) -> None:
        told = Told(event.stack, f"to the device, {size_text(event.bytes)}")
        self._add(HOST, event, Kind("upload"), told)
        self._add(TRANSFERS, event, Kind("upload"), told)
        sums = self.uploads.setdefault(event.stack, [0, 0, 0]) if len(self.uploads) < 10_000 else [0, 0, 0]
        sums[0] += 1
        sums[1] += event.dur
        sums[2] += event.bytes

    def _sample(self, event: ev.Sample | ev.Look) -> None:
        part = _STATES.get(event.state, "python")
        self._add(SEEN, event, Kind(part), Told(event.stack, "as seen from outside"))

    def _execute(self, event: ev.Execute) -> None:
        many = f", {event.calls:,} programs" if event.calls > 1 else ""
        failed = f", failed: {event.error}" if event.error else ""
        told = Told(event.stack, f"graph {event.program}{many}{failed}")
        self._put((DEVICE, min(event.device, _DEVICES), 0), event.start, event.end, Kind("device"), told)


def title(key: tuple[int, int, int], threads: dict[int, str], devices: int) -> str:
    """What the row ``key`` is called."""
    row, which, _ = key
    if row == DEVICE:
        return f"device {which}" if devices > 1 else "device"
    thread = threads.get(which) or ("main" if which == 1 else f"thread {which}")
    thread = "further threads" if which > _THREADS else thread
    what = {STEPS: "steps", SCOPES: "scopes", HOST: "host", SEEN: "seen from outside", TRANSFERS: "transfers"}[row]
    return f"{thread}: {what}"


def label(kind: Kind, told: Told | None, names: Names) -> str:
    """What a stretch, or all of its kind in a cell, is called."""
    name = names.text(kind.name) if kind.name else ""
    if told is None:
        return name or kind.part
    if kind.part == "step":
        return f"{name or 'step'} {told.text}"
    if kind.part in ("device", "dispatch") and told.text:
        return told.text
    what = [name or kind.part, names.text(told.op) if told.op else "", told.text]
    return ", ".join(filter(None, what))


def place_of(told: Told, names: Names) -> Place:
    """The line of a stretch, of plain Python the one of the two around it to show."""
    return culprit(*names.bracket(told.stack, told.after)) if told.after else names.place(told.stack)


def part_of(cause: Cause) -> str:
    """The part of a step that a cause of idle time is drawn as."""
    if isinstance(cause, Seen):
        cause = cause.cause
        return "waiting" if cause == WAIT else "python" if cause in (OTHER, GLIMPSE) else CAUSES[cause]
    if isinstance(cause, tuple):
        return "python"
    return "named scopes" if cause >= SCOPE else CAUSES[cause]
