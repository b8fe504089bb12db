"""A training that the terminal UI follows: its log grows while the test goes on.

A step traces for 90 ms and reaches a barrier that starts 95 ms of device work, so that the host is a step ahead and
the device busy: nothing is wrong until a step compiles again, or reads what the device still computes.
"""

from __future__ import annotations

from pathlib import Path

from story import MS, UNIX, Story

from xlaprof import events as ev

#: Unix time at which every story begins, seconds.
BEGAN = UNIX / 1e9


class Training(Story):
    """Writes a log at ``path`` step by step."""

    def __init__(
        self,
        path: Path,
        host: str = "ada",
        pid: int = 4242,
        began: float = BEGAN,
        file: str = "/home/ada/examples/train.py",
        total: int = 0,
    ) -> None:
        """``total``: the steps that it says it will take."""
        super().__init__(
            file,
            path=path,
            pid=pid,
            unix_ns=int(began * 1e9),
            host=host,
            argv=["examples/train.py", "--epochs", "3"],
            cwd="/home/ada",
            versions={"xlaprof": "0.1.0"},
        )
        self.num = 0
        self._total = total
        self._compiled = 0
        self._last_shape = "i64[8,128]"
        self._left = False
        self.put(ev.Device(t=0, platform="cpu", kind="TFRT_CPU"), ev.Thread(tid=1, name="MainThread"))
        self.sync = self.line(31, "xlaprof.runtime.sync()", func="train_step")
        self.embedding = self.line(24, "h = self.embedding(tokens)", func="train_step")
        self.item = self.line(33, "print(loss.item())", func="train_step")
        self.name, self.forward, self.op = map(self.text, ("train", "forward", "aten::_local_scalar_dense"))

    def train_step(self, compile_ms: int = 0, shape: str = "i64[8,128]", read: bool = False) -> None:
        """One step; ``compile_ms`` longer if it compiles a graph for ``shape``; ``read``: it ends in an .item()."""
        begin = self.now
        self.now += 90 * MS
        if compile_ms:
            self._compile(compile_ms, shape)
        self._seq += 1
        run = self._seq
        start = max(self.now + MS, self._device_free)
        end = self._device_free = start + 95 * MS
        events: list[ev.Event] = [
            ev.Scope(name=self.forward, t=begin, dur=5 * MS),
            ev.Barrier(t=self.now, dur=2 * MS, stack=self.sync, ops=12, tracing=88 * MS, execution=run),
            ev.Execute(seq=run, program=self._compiled, t=start, start=start, end=end, stack=self.sync),
        ]
        self.now += 3 * MS
        if read:
            wait = end - self.now
            events.append(
                ev.TransferFromDevice(t=self.now, dur=wait + MS, wait=wait, bytes=4, op=self.op, stack=self.item)
            )
            self.now = end + MS
        self.now += 7 * MS
        meta = {"total": self._total} if self._total else {}
        events.append(ev.Step(name=self.name, num=self.num, t=begin, dur=self.now - begin, meta=meta))
        self.num += 1
        self.put(*events)

    def train(self, count: int, read: bool = False) -> None:
        """``count`` steps that compile nothing."""
        for _ in range(count):
            self.train_step(read=read)

    def begin_to_compile(self, first: ev.Difference | None = None) -> None:
        """A compilation begins; it ends with the next step that compiles."""
        self.put(ev.Compiling(t=self.now, ops=12, stack=self.sync, first=first))

    def _compile(self, ms: int, shape: str) -> None:
        self._compiled += 1
        change = None
        if self._compiled > 1:
            change = ev.Change(
                what="shape",
                old=self._last_shape,
                new=shape,
                subject="input 0 of aten::embedding",
                stack=self.embedding,
                expected=self.embedding,
                against=self._compiled - 1,
            )
        self._last_shape = shape
        self.put(
            ev.Compile(
                t=self.now,
                dur=ms * MS,
                program=self._compiled,
                graph=f"{self._compiled:016x}",
                ops=12,
                inputs=3,
                outputs=1,
                stack=self.sync,
                change=change,
            )
        )
        self.now += ms * MS

    def end(self, error: str = "") -> None:
        """The program ends in order."""
        self.put(ev.End(t=self.now, error=error))
        self.leave()

    def leave(self) -> None:
        """The program is gone without a word."""
        if not self._left:  # a descriptor that is closed twice may be somebody else's by then
            self._left = True
            assert self.log is not None
            self.log.close()
