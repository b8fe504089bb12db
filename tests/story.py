"""Recordings on a fake clock: each verb moves the clock on and leaves the events that a real recording would.

    story = Story()
    for _ in range(10):
        with story.step():
            story.trace(4)
            story.barrier(line, device=20)
    run = story.run()

All lengths are milliseconds. The device runs its programs in order while the host goes on; reads wait for it. An
execution is recorded when it has ended, as by the runtime's watcher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec import structs

from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.events import (
    SCHEMA,
    AnyEvent,
    Barrier,
    Change,
    Compile,
    DataWait,
    DeviceWait,
    End,
    Event,
    Execute,
    Fallback,
    Frame,
    Gc,
    GraphBreak,
    GraphDiff,
    Header,
    Hole,
    Scope,
    Stack,
    Step,
    Text,
    TransferFromDevice,
    TransferToDevice,
)
from xlaprof.recording.logfile import LogFile, line

MS = 1_000_000

#: Unix time at which every story begins, ns
UNIX = 1_700_000_000_000_000_000


class Story:
    """A program's events. ``events`` is the log, which is also written to ``path``, if given, event by event.

    ``fields`` replace fields of the usual header; with ``header=False`` there is none.
    """

    def __init__(
        self,
        file: str = "train.py",
        header: bool = True,
        rank: int = 0,
        start: int = 0,
        path: Path | None = None,
        **fields: object,
    ) -> None:
        self.file = file
        self.now = start * MS
        self.events: list[Event] = []
        self.log = LogFile(str(path)) if path is not None else None
        self._texts: dict[str, int] = {}
        self._stacks: dict[tuple[object, ...], int] = {}
        self._device_free = 0
        self._running: list[Execute] = []
        self._tracing = 0
        self._programs: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._depth = 0
        self._seq = 0
        if header:
            usual: dict[str, object] = {
                "schema": SCHEMA,
                "pid": 100 + rank,
                "mono_ns": self.now,
                "unix_ns": UNIX,
                "host": "box",
                "rank": rank,
                "argv": ["train.py", "--fast"],
                "versions": {"torch": "2.13.0"},
            }
            self.put(Header(**usual | fields))  # type: ignore[arg-type]

    # -- names

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts) + 1
            self.put(Text(id=self._texts[text], text=text))
        return self._texts[text]

    def line(
        self,
        number: int,
        code: str = "",
        func: str = "train",
        file: str = "",
        outer: tuple[int, ...] = (),
        loops: tuple[int, ...] = (),
        call: str = "",
        library: tuple[tuple[str, int, str, str, int], ...] = (),
        takers: tuple[str, ...] = (),
    ) -> int:
        """A stack whose innermost frame is this line; ``outer``: lines of main() it was called from.

        ``loops``: of each frame the line of the loop around it, 0 for none. ``call``: the code of the outer lines.
        ``library``: lines of libraries below this one, innermost first: file, line, function, code, line of its loop.
        ``takers``: the statements that take what the line binds.
        """
        key = (number, code, func, file, outer, loops, call, library, takers)
        if key not in self._stacks:
            where = self.text(file or self.file)
            frames = [Frame(where, number, self.text(func), self.text(code) if code else 0)]
            frames += [
                Frame(self.text(self.file), caller, self.text("main"), self.text(call) if call else 0)
                for caller in outer
            ]
            head = self.text("for turn in turns:") if any(loops) else 0
            frames = [
                structs.replace(frame, loop=loop, head=head if loop else 0)
                for frame, loop in zip_longest(frames, loops[: len(frames)], fillvalue=0)
            ]
            self._stacks[key] = len(self._stacks) + 1
            head = self.text("for batch in epoch:") if any(one[-1] for one in library) else 0
            below = [
                Frame(self.text(path), line, self.text(name), self.text(text), loop, head if loop else 0)
                for path, line, name, text, loop in library
            ]
            taken = [self.text(one) for one in takers]
            self.put(Stack(id=self._stacks[key], frames=frames, library=below, depths=[0] * len(below), takers=taken))
        return self._stacks[key]

    # -- the host

    def spend(self, ms: float) -> None:
        """Let the host do something that no event shows."""
        self.now += round(ms * MS)

    def trace(self, ms: float) -> None:
        """Let the host record operations."""
        self.spend(ms)
        self._tracing += round(ms * MS)

    def python(self, ms: float, before: int, after: int) -> None:
        """Plain Python between two lines (stacks)."""
        self.spend(ms)
        self.emit(Hole(t=self.now - round(ms * MS), dur=round(ms * MS), before=before, after=after))

    @contextmanager
    def scope(self, name: str, stack: int = 0) -> Iterator[None]:
        id = self.text(name)
        start, depth = self.now, self._depth
        self._depth += 1
        yield
        self._depth = depth
        self.emit(Scope(name=id, t=start, dur=self.now - start, depth=depth, stack=stack))

    @contextmanager
    def step(self, name: str = "train", tid: int = 1) -> Iterator[int]:
        id = self.text(name)
        start = self.now
        num = self._steps[name] = self._steps.get(name, -1) + 1
        yield num
        self.emit(Step(name=id, num=num, t=start, dur=self.now - start, tid=tid))

    def gc(self, ms: float, stack: int = 0) -> None:
        self.spend(ms)
        self.emit(Gc(t=self.now - round(ms * MS), dur=round(ms * MS), generation=2, stack=stack))

    def data(self, ms: float, line: int = 0) -> None:
        self.spend(ms)
        self.emit(DataWait(t=self.now - round(ms * MS), dur=round(ms * MS), stack=line))

    # -- the runtime

    def compile(
        self,
        graph: str,
        ms: float,
        stack: int,
        change: Change | GraphDiff | None = None,
        trigger: str = "sync",
        ops: int = 100,
        tid: int = 1,
        loops: int = 0,
        loop: int = 0,
        loop_ops: int = 0,
        loop_shared: bool = False,
        again: int = -1,
        turns: Sequence[int] = (),
    ) -> None:
        """Compile ``graph``, unless it is compiled already."""
        if graph in self._programs:
            return
        self._programs[graph] = len(self._programs) + 1
        self.spend(ms)
        dur = round(ms * MS)
        self.emit(
            Compile(
                t=self.now - dur,
                dur=dur,
                program=self._programs[graph],
                graph=graph,
                ops=ops,
                inputs=2,
                outputs=2,
                stack=stack,
                trigger=trigger,
                change=change if isinstance(change, Change) else None,
                diff=change if isinstance(change, GraphDiff) else None,
                tid=tid,
                loops=loops,
                loop=loop,
                loop_ops=loop_ops,
                loop_shared=loop_shared,
                again=again,
                turns=list(turns),
            )
        )

    def execute(self, graph: str, device: float, stack: int, trigger: str = "sync") -> int:
        """Dispatch a program that runs for ``device`` ms."""
        self._seq += 1
        start = max(self.now, self._device_free)
        self._device_free = start + round(device * MS)
        self._running.append(
            Execute(
                seq=self._seq,
                program=self._programs.get(graph, 1),
                t=self.now,
                start=start,
                end=self._device_free,
                trigger=trigger,
                stack=stack,
            )
        )
        return self._seq

    def barrier(
        self,
        stack: int,
        device: float = 10,
        graph: str = "step",
        compile: float = 500,
        change: Change | GraphDiff | None = None,
        ops: int = 100,
        dispatch: float = 0.2,
        trigger: str = "sync",
        loops: int = 0,
        loop: int = 0,
        loop_ops: int = 0,
        loop_shared: bool = False,
        turns: Sequence[int] = (),
        loop_trains: bool = False,
        loop_learns: bool = False,
        trains: bool = False,
    ) -> None:
        """End a graph: compile it if it is new, and run it."""
        start = self.now
        if ops:
            self.compile(graph, compile, stack, change, trigger, ops)
        self.spend(dispatch)
        execution = self.execute(graph, device, stack, trigger) if ops else 0
        self.emit(
            Barrier(
                t=start,
                dur=self.now - start,
                trigger=trigger,
                stack=stack,
                ops=ops,
                tracing=self._tracing,
                execution=execution,
                loops=loops,
                loop=loop,
                loop_ops=loop_ops,
                loop_shared=loop_shared,
                turns=list(turns),
                loop_trains=loop_trains,
                loop_learns=loop_learns,
                trains=trains,
            )
        )
        self._tracing = 0

    def read(
        self,
        stack: int,
        op: str = "aten::_local_scalar_dense",
        copy: float = 0.01,
        tid: int = 1,
        via: str = "",
        late: bool = False,
        bytes: int = 4,
    ) -> None:
        """Wait for the device, then copy; a ``late`` read does not wait."""
        start = self.now
        self.now = self.now if late else max(self.now, self._device_free)
        wait = self.now - start
        self.spend(copy)
        self.emit(
            TransferFromDevice(
                t=start,
                dur=self.now - start,
                wait=wait,
                bytes=bytes,
                op=self.text(op),
                stack=stack,
                tid=tid,
                via=self.text(via) if via else 0,
                late=late,
            )
        )

    def wait(self, stack: int = 0) -> None:
        """Wait until the device has done everything."""
        start = self.now
        self.now = max(self.now, self._device_free)
        self.emit(DeviceWait(t=start, dur=self.now - start, stack=stack))

    def fallback(self, stack: int, op: str, ms: float, tid: int = 1) -> None:
        """Run ``op`` on the CPU: read its input, compute, upload."""
        start = self.now
        self.read(stack, op, tid=tid)
        self.spend(ms)
        self.emit(Fallback(t=start, dur=self.now - start, op=self.text(op), stack=stack, tid=tid))

    def replay_fallback(self, stack: int, op: str, start: int) -> None:
        """Count the time since ``start`` as an operation on the CPU."""
        self.emit(Fallback(t=start, dur=self.now - start, op=self.text(op), stack=stack))

    def upload(self, ms: float, stack: int, tid: int = 1, again: str = "", size: int = 64) -> None:
        """``again``: what the line had brought to the device before."""
        self.spend(ms)
        what, took = self.text(again) if again else 0, round(ms * MS)
        self.emit(
            TransferToDevice(
                t=self.now - took, dur=took, bytes=size, stack=stack, tid=tid, again=bool(again), what=what
            )
        )

    def breaks(self, reason: str, stack: int, hint: str = "") -> None:
        self.emit(GraphBreak(t=self.now, reason=reason, stack=stack, hint=hint))

    # -- the end

    def emit(self, event: AnyEvent | Event) -> None:
        done = [one for one in self._running if one.end <= self.now]
        self._running = self._running[len(done) :]
        self.put(*done, event)

    def put(self, *events: AnyEvent | Event) -> None:
        """Append events without those of finished executions."""
        self.events += events
        if self.log is not None:
            for event in events:
                self.log.append(line(event))
            assert self.log.flush(), self.log.trouble

    def finish(self, error: str = "") -> list[Event]:
        """Wait for the device and end the recording."""
        self.now = max(self.now, self._device_free)
        self.emit(End(t=self.now, error=error))
        return self.events

    def run(self, since_step: int | None = None) -> Run:
        return Run(since_step).feed_all(self.events)

    def report(self, since_step: int | None = None) -> Report:
        return self.run(since_step).report("run.log")

    def findings(self, kind: str = "") -> list[Finding]:
        return [finding for finding in self.report().findings if kind in ("", finding.kind)]


def clean(steps: int = 20, story: Story | None = None) -> Story:
    """A training with nothing wrong: one graph, no reads until the end, the device busy most of the time."""
    story = story or Story()
    barrier = story.line(20, "xr.sync()")
    for _ in range(steps):
        with story.step():
            story.trace(2)
            story.barrier(barrier, device=10)
            story.spend(7)
    story.read(story.line(30, "print(loss.item())"))
    return story


def save(events: list[Event], path: Path) -> Path:
    """Write ``events`` as the lines of a log."""
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path
