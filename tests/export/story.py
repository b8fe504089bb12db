"""A training told by a fake clock: what was planted is known, so every figure has a truth to be held against."""

from __future__ import annotations

from pathlib import Path

import msgspec

from xlaprof import events as ev

MS = 1_000_000
START = 5_000 * MS  # of the monotonic clock
UNIX = 1_700_000_000_000 * MS


class Story:
    """One device, one thread, a clock that only moves when told."""

    def __init__(self, host: str = "box") -> None:
        self.now = START
        self.free = START  # when the device has run all it was given
        self.seq = 0
        self.ids: dict[str, int] = {}
        self.events: list[ev.Event] = [
            ev.Header(schema=1, pid=7, mono_ns=START, unix_ns=UNIX, host=host, cwd="/home/me"),
            ev.Device(t=START, platform="cuda", kind="NVIDIA H200"),
            ev.Thread(tid=1, name="MainThread"),
        ]

    def text(self, text: str) -> int:
        if text not in self.ids:
            self.ids[text] = len(self.ids) + 1
            self.events.append(ev.Text(id=self.ids[text], text=text))
        return self.ids[text]

    def line(self, line: int, code: str) -> int:
        """A stack whose innermost line is ``/home/me/train.py:line``; its id is the line."""
        if f"stack {line}" not in self.ids:
            frame = ev.Frame(self.text("/home/me/train.py"), line, self.text("main"), self.text(code))
            self.ids[f"stack {line}"] = line
            self.events.append(ev.Stack(id=line, frames=[frame]))
        return line

    def work(self, ms: float) -> None:
        self.now += round(ms * MS)

    def compile(self, ms: float, program: int = 1) -> None:
        stack = self.line(40, "xla.sync()")
        event = ev.Compile(
            t=self.now, dur=round(ms * MS), program=program, graph="c0ffee", ops=9, inputs=1, outputs=1, stack=stack
        )
        self.events.append(event)
        self.work(ms)

    def barrier(self, device_ms: float, program: int = 1, wait: bool = True, device: int = 0) -> None:
        """Hand ``device_ms`` of work to the device; with ``wait``, until it is done."""
        stack = self.line(40, "xla.sync()")
        self.seq += 1
        self.events.append(ev.Barrier(t=self.now, dur=0, stack=stack, ops=9, execution=self.seq))
        start = max(self.now, self.free)
        self.free = start + round(device_ms * MS)
        run = ev.Execute(
            seq=self.seq, program=program, t=self.now, start=start, end=self.free, stack=stack, device=device
        )
        self.events.append(run)
        if wait:
            self.now = self.free

    def scope(self, name: str, start: int, **meta: str | int | float | bool | None) -> None:
        self.events.append(ev.Scope(name=self.text(name), t=start, dur=self.now - start, meta=meta))

    def step(self, name: str, num: int, start: int) -> None:
        self.events.append(ev.Step(name=self.text(name), num=num, t=start, dur=self.now - start))

    def train(self, steps: int, host_ms: float = 4, device_ms: float = 6, first: int = 0, wait: bool = True) -> None:
        """``steps`` steps, the very first of which compiles."""
        for num in range(first, first + steps):
            start = self.now
            if not self.seq:
                self.compile(500)
            self.work(host_ms)
            self.scope("forward", start)
            self.barrier(device_ms, wait=wait)
            self.step("train", num, start)

    def end(self) -> list[ev.Event]:
        self.events.append(
            ev.Counters(t=self.now, counts={"CompileTime": 1, "aten::nonzero": 3}, seconds={"CompileTime": 0.5})
        )
        self.events.append(ev.End(t=self.now))
        return self.events


def save(events: list[ev.Event], path: Path) -> Path:
    """Write ``events`` as the lines of a log."""
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path
