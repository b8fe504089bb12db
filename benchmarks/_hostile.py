"""A recording made to be hard on memory: names, places, programs, steps and threads that hardly ever repeat."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.events import (
    SCHEMA,
    AnyEvent,
    Barrier,
    Change,
    Compile,
    DataWait,
    Execute,
    Fallback,
    Frame,
    Gc,
    GraphBreak,
    Header,
    Hole,
    Sample,
    Scope,
    Stack,
    Step,
    Text,
    Thread,
    TransferFromDevice,
    TransferToDevice,
)

MS = 1_000_000
STATES = ("", "python", "wait", "data", "checkpoint", "gil", "cpu", "torch")


def hostile(places: int = 60_000) -> Iterator[AnyEvent]:
    """An endless one. ``places``: different stacks, as many as a recording hands out."""
    yield Header(schema=SCHEMA, pid=1, mono_ns=0, unix_ns=1_700_000_000_000_000_000, host="bench")
    for id in range(1, places):
        yield Text(id=id, text=f"a name of some length, number {id}")
    for id in range(1, places):
        yield Stack(id=id, frames=[Frame(id, id % 5_000, id, id), Frame(id // 2, 7, id // 3), Frame(1, 99, 1)])
    t = 0
    n = 0
    while True:
        n += 1
        place, other = n * 7919 % places, n * 104_729 % places
        t += 3 * MS
        yield Thread(tid=n % 100_000, name="worker")
        yield Scope(name=place, t=t, dur=MS, tid=n % 5_000 if n % 3 else 1, depth=n % 50, stack=place)
        yield Hole(t=t, dur=2 * MS, before=place, after=other)
        yield Sample(t=t, dur=2 * MS, stack=other, state=STATES[n % len(STATES)], at=place, holder="worker")
        yield TransferToDevice(t=t, dur=1_000, bytes=64, stack=place)
        yield Gc(t=t, dur=1_000, generation=n % 3, stack=place)
        yield DataWait(t=t, dur=1_000, stack=other)
        change = Change(what="shape", old=f"f32[{n}]", new=f"f32[{n + 1}]", subject="input 0", stack=place)
        yield Compile(
            t=t, dur=MS, program=n, graph=f"{n:x}", ops=n % 900, inputs=3, outputs=2, stack=place, change=change
        )
        yield Barrier(t=t + MS, dur=MS, stack=place, ops=n % 900, tracing=MS // 2, execution=n)
        yield TransferFromDevice(t=t + MS, dur=MS, wait=MS // 2, bytes=4, op=other, stack=place)
        yield Fallback(t=t + MS, dur=MS, op=place, stack=other)
        yield GraphBreak(t=t, reason=f"because of {n}", stack=place)
        yield Execute(seq=n, program=n, t=t, start=t + n % 7 * MS, end=t + (7 + n % 9) * MS, stack=place, device=n % 2)
        yield Step(name=other if n % 5 else 1, num=n, t=t, dur=2 * MS + n % 77)
