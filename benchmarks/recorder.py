"""What recording costs the program, the writer and the reader: CPU time on one core.

    taskset -c 0 python benchmarks/recorder.py [EVENTS]

"program" is what the recorded program pays on its own thread; "writer" is the background thread, which shares
the core and the interpreter with it; "reader" is ``xlaprof.read`` over a log of EVENTS events (1,000,000).
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import msgspec

import xlaprof
from xlaprof import log
from xlaprof.events import SCHEMA, Barrier, Execute, Header, Scope, Step, Text, TransferFromDevice
from xlaprof.recording import recorder, stacks

CALLS = 20_000
REPEATS = 20


def cost(call: Callable[[], object], settle: Callable[[], None] = lambda: None) -> float:
    """CPU nanoseconds of this thread per call: the best of 20 repeats, the loop left out."""

    def best(function: Callable[[], object]) -> float:
        least = float("inf")
        for _ in range(REPEATS):
            began = time.thread_time_ns()
            for _ in range(CALLS):
                function()
            least = min(least, (time.thread_time_ns() - began) / CALLS)
            settle()
        return least

    return best(call) - best(lambda: None)


def drain() -> None:
    while recorder.active is not None and recorder.active.queue:
        time.sleep(0.01)


def program(folder: str) -> None:
    with xlaprof.record(os.path.join(folder, "program.log"), detail="full"):
        rec = recorder.active
        assert rec is not None
        frames = stacks.user_frames()
        name = rec.text("aten::add")
        rows: dict[str, Callable[[], object]] = {
            "emit(Scope(...))": lambda: rec.emit(Scope(name, 1_000_000_000, 1_000)),
            "text(known)": lambda: rec.text("aten::add"),
            "stack(known)": lambda: rec.stack(frames),
            "thread()": rec.thread,
        }
        for what, call in rows.items():
            print(f"program   {what:<28}{cost(call, drain):>10,.0f} ns")
    print(f"program   {'user_frames()':<28}{under_frames(20):>10,.0f} ns   (20 frames of a library, 3 of the user's)")


def under_frames(depth: int) -> float:
    """``user_frames`` as an operation sees it: the user's line, and a framework's frames below."""
    source = f"def call(n):\n    return cost(user_frames) if n == 0 else call(n - 1)\ncall({depth})"
    names = {"cost": cost, "user_frames": stacks.user_frames, "__name__": "framework"}
    code = compile(source.replace(f"call({depth})", ""), "/usr/lib/python3/dist-packages/framework.py", "exec")
    exec(code, names)
    call: Callable[[int], float] = names["call"]  # type: ignore[assignment]
    return call(depth)


def writer(folder: str, detail: recorder.Detail) -> None:
    """CPU of the writer per event of a training loop: 1,000 steps of 40 events, a step per millisecond at most."""
    path = os.path.join(folder, "writer.log")
    steps, events = 1_000, 40
    process, thread = time.process_time_ns(), time.thread_time_ns()
    with xlaprof.record(path, detail=detail):
        rec = recorder.active
        assert rec is not None
        for i in range(steps):
            with xlaprof.StepTrace("train", step_num=i):
                for _ in range(events - 1):
                    with xlaprof.Trace("layer"):
                        pass
            if i % 10 == 9:
                drain()
    ours = time.thread_time_ns() - thread
    other = time.process_time_ns() - process - ours
    size = os.path.getsize(path)
    print(
        f"writer    detail={detail:<21}{other / steps / events:>10,.0f} ns   per event; "
        f"{size / steps:,.0f} bytes of log per step of {events} events"
    )


def reader(folder: str, count: int) -> None:
    path = os.path.join(folder, "reader.log")
    encode = msgspec.json.encode
    with open(path, "wb") as file:
        file.write(encode(Header(SCHEMA, 1, 0, 0)) + b"\n" + encode(Text(1, "train")) + b"\n")
        lines = bytearray()
        for i in range(count // 5):
            t = 10**12 + i * 10**6
            for event in (
                Scope(1, t, 500_000, depth=1),
                Barrier(t + 600_000, 50_000, "sync", 7, 900, 300_000, i),
                Execute(i, 3, t + 620_000, t + 621_000, t + 990_000, 20_000, "sync", 7),
                TransferFromDevice(t + 700_000, 300_000, 290_000, 4, 9, 12),
                Step(1, i, t, 999_000),
            ):
                lines += encode(event) + b"\n"
        file.write(lines)
    del lines
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        total = sum(1 for _ in log.read(path))
        best = min(best, time.process_time() - began)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"reader    {total:,} events{'':<12}{best:>10.2f} s    {os.path.getsize(path) / 1e6:,.0f} MB of log, "
        f"{(after - before) / 1024:,.0f} MB of memory more than writing it took"
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    assert threading.active_count() == 1
    with tempfile.TemporaryDirectory() as folder:
        program(folder)
        writer(folder, "full")
        writer(folder, "auto")
        reader(folder, count)


if __name__ == "__main__":
    main()
