"""A training on one device and one thread: what was planted is known, so every figure has a known truth."""

from __future__ import annotations

from story import MS, Story

from xlaprof import events as ev

START = 5_000 * MS  # of the monotonic clock


class Training(Story):
    """Programs with a number each, whose executions are in the log as soon as they are handed over."""

    def __init__(self, host: str = "box") -> None:
        super().__init__("/home/me/train.py", start=START // MS, pid=7, host=host, cwd="/home/me", argv=[])
        self.put(ev.Device(t=START, platform="cuda", kind="NVIDIA H200"), ev.Thread(tid=1, name="MainThread"))

    def compile_program(self, ms: float, program: int = 1) -> None:
        start, stack = self.now, self.line(40, "xla.sync()")
        self.spend(ms)
        self.put(
            ev.Compile(
                t=start, dur=self.now - start, program=program, graph="c0ffee", ops=9, inputs=1, outputs=1, stack=stack
            )
        )

    def run_program(self, device_ms: float, program: int = 1, wait: bool = True, device: int = 0) -> None:
        """A barrier that hands ``device_ms`` of work to a device; with ``wait`` the program goes on when it is done."""
        stack = self.line(40, "xla.sync()")
        self._seq += 1
        start = max(self.now, self._device_free)
        self._device_free = start + round(device_ms * MS)
        self.put(
            ev.Barrier(t=self.now, dur=0, stack=stack, ops=9, execution=self._seq),
            ev.Execute(self._seq, program, self.now, start, self._device_free, stack=stack, device=device),
        )
        if wait:
            self.now = self._device_free

    def end_step(self, name: str, num: int, start: int) -> None:
        self.put(ev.Step(name=self.text(name), num=num, t=start, dur=self.now - start))

    def train(self, steps: int, host_ms: float = 4, device_ms: float = 6, first: int = 0, wait: bool = True) -> None:
        """``steps`` steps, the very first of which compiles."""
        for num in range(first, first + steps):
            start = self.now
            if not self._seq:
                self.compile_program(500)
            self.spend(host_ms)
            self.put(ev.Scope(name=self.text("forward"), t=start, dur=self.now - start))
            self.run_program(device_ms, wait=wait)
            self.end_step("train", num, start)

    def end(self) -> list[ev.Event]:
        self.put(
            ev.Counters(t=self.now, counts={"CompileTime": 1, "aten::nonzero": 3}, seconds={"CompileTime": 0.5}),
            ev.End(t=self.now),
        )
        return self.events
