"""A training run told event by event, at made-up times, written with the recorder's own file code.

A step traces for 90 ms and reaches a barrier that starts 95 ms of device work, so that the host is a step ahead and
the device busy: nothing is wrong until a step compiles again, or reads what the device still computes.
"""

from __future__ import annotations

from pathlib import Path

from xlaprof import events as ev
from xlaprof.recording.logfile import LogFile, line

MS = 1_000_000
#: Unix time at which every story begins, seconds.
BEGAN = 1_700_000_000.0
BARRIER, EMBEDDING, ITEM = 1, 2, 3  # Stack ids


class Story:
    """Writes a log at ``path`` as the story goes on. ``t`` is the present moment, ns."""

    def __init__(self, path: Path, host: str = "ada", pid: int = 4242, began: float = BEGAN) -> None:
        self.t = 0
        self.num = 0
        self._programs = 0
        self._executions = 0
        self._device_free = 0
        self._last_shape = "i64[8,128]"
        self._left = False
        self._file = LogFile(str(path))
        self.write(
            ev.Header(
                schema=ev.SCHEMA,
                pid=pid,
                mono_ns=0,
                unix_ns=int(began * 1e9),
                host=host,
                argv=["examples/train.py", "--epochs", "3"],
                cwd="/home/ada",
                versions={"xlaprof": "0.1.0"},
            ),
            ev.Device(t=0, platform="cpu", kind="TFRT_CPU"),
            ev.Thread(tid=1, name="MainThread"),
            *(ev.Text(id=i, text=s) for i, s in enumerate(TEXTS, start=1)),
            ev.Stack(id=BARRIER, frames=[ev.Frame(1, 31, 2, 3)]),
            ev.Stack(id=EMBEDDING, frames=[ev.Frame(1, 24, 2, 4)]),
            ev.Stack(id=ITEM, frames=[ev.Frame(1, 33, 2, 5)]),
        )

    def write(self, *told: ev.Event) -> None:
        """Put events into the file, now."""
        for event in told:
            self._file.append(line(event))
        assert self._file.flush(), self._file.trouble

    def step(self, compile_ms: int = 0, shape: str = "i64[8,128]", read: bool = False) -> None:
        """One step; ``compile_ms`` longer if it compiles a graph for ``shape``; ``read``: it ends in an .item()."""
        begin = self.t
        self.t += 90 * MS
        if compile_ms:
            self._compile(compile_ms, shape)
        self._executions += 1
        run = self._executions
        start = max(self.t + MS, self._device_free)
        end = self._device_free = start + 95 * MS
        told: list[ev.Event] = [
            ev.Scope(name=7, t=begin, dur=5 * MS),
            ev.Barrier(t=self.t, dur=2 * MS, stack=BARRIER, ops=12, tracing=88 * MS, execution=run),
            ev.Execute(seq=run, program=self._programs, t=start, start=start, end=end, stack=BARRIER),
        ]
        self.t += 3 * MS
        if read:
            wait = end - self.t
            told.append(ev.TransferFromDevice(t=self.t, dur=wait + MS, wait=wait, bytes=4, op=8, stack=ITEM))
            self.t = end + MS
        self.t += 7 * MS
        told.append(ev.Step(name=6, num=self.num, t=begin, dur=self.t - begin))
        self.num += 1
        self.write(*told)

    def steps(self, count: int, read: bool = False) -> None:
        """``count`` steps that compile nothing."""
        for _ in range(count):
            self.step(read=read)

    def begin_to_compile(self) -> None:
        """A compilation begins; it ends with the next step that compiles."""
        self.write(ev.Compiling(t=self.t, ops=12, stack=BARRIER))

    def _compile(self, ms: int, shape: str) -> None:
        self._programs += 1
        change = None
        if self._programs > 1:
            change = ev.Change(
                what="shape",
                old=self._last_shape,
                new=shape,
                subject="input 0 of aten::embedding",
                stack=EMBEDDING,
                expected=EMBEDDING,
            )
        self._last_shape = shape
        self.write(
            ev.Compile(
                t=self.t,
                dur=ms * MS,
                program=self._programs,
                graph=f"{self._programs:016x}",
                ops=12,
                inputs=3,
                outputs=1,
                stack=BARRIER,
                change=change,
            )
        )
        self.t += ms * MS

    def end(self, error: str = "") -> None:
        """The program ends in order."""
        self.write(ev.End(t=self.t, error=error))
        self.leave()

    def leave(self) -> None:
        """The program is gone without a word."""
        if not self._left:  # a descriptor that is closed twice may be somebody else's by then
            self._left = True
            self._file.close()


TEXTS = (
    "/home/ada/examples/train.py",
    "train_step",
    "xlaprof.runtime.sync()",
    "h = self.embedding(tokens)",
    "print(loss.item())",
    "train",
    "forward",
    "aten::_local_scalar_dense",
)
