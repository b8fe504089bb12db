"""How long it takes to read and analyse a long log, and how much memory.

    python benchmarks/analyse_log.py [--events 1000000] [--log run.log | --digests | --hostile] [--json]

Writes a log of a training of that many events, in full (a recorder would sum most of its steps), then reads
and analyses it in a fresh process. The aim: 1,000,000 events in at most 2 s.

--digests writes what a recorder makes of most steps of a long run: their sums.

--hostile folds events that hardly ever repeat (names, places, programs, steps, threads), without a log and without a
report: what a live Run then holds. The aim: at most 200 MB after 10,000,000.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Union

import msgspec

from xlaprof.events import (
    SCHEMA,
    AnyEvent,
    Barrier,
    Compile,
    Counters,
    Execute,
    Frame,
    Gc,
    Header,
    Hole,
    Scope,
    Stack,
    Step,
    StepDigest,
    Text,
    TransferFromDevice,
    TransferToDevice,
)

US = 1_000
AIM_S, AIM_MB = 2.0, 200.0


def training() -> Iterator[AnyEvent]:
    """An endless training: per step two uploads, three scopes, a barrier, a read, a hole, an execution."""
    yield Header(schema=SCHEMA, pid=1, mono_ns=0, unix_ns=1_700_000_000_000_000_000, host="bench", argv=["train.py"])
    for id, text in enumerate(["train.py", "train", "load", "forward", "backward", "aten::_local_scalar_dense"], 1):
        yield Text(id=id, text=text)
    for id in range(1, 9):
        yield Stack(id=id, frames=[Frame(1, 10 + id, 2), Frame(1, 99, 2)])
    yield Compile(t=0, dur=900_000 * US, program=1, graph="ab", ops=800, inputs=60, outputs=60, stack=5)
    step = 0
    t = 1_000_000 * US
    while True:
        yield Scope(name=3, t=t + 100 * US, dur=1_000 * US, depth=0)
        yield Hole(t=t, dur=1_200 * US, before=5, after=1)
        yield TransferToDevice(t=t + 1_200 * US, dur=100 * US, bytes=4096, stack=1)
        yield TransferToDevice(t=t + 1_300 * US, dur=100 * US, bytes=4096, stack=2)
        yield Scope(name=4, t=t + 1_500 * US, dur=2_000 * US, depth=0)
        if not step % 7:
            yield Gc(t=t + 4_000 * US, dur=150 * US, generation=0)
        yield Scope(name=5, t=t + 3_500 * US, dur=2_000 * US, depth=0)
        yield Barrier(
            t=t + 5_600 * US, dur=300 * US, stack=5, ops=800, tracing=3_500 * US, execution=step + 1, loops=12, loop=3
        )
        yield TransferFromDevice(t=t + 6_000 * US, dur=3_000 * US, wait=2_900 * US, bytes=4, op=6, stack=6)
        start = t + 5_700 * US
        yield Execute(seq=step + 1, program=1, t=start, start=start, end=t + 8_900 * US, enqueue=100 * US, stack=5)
        yield Step(name=2, num=step, t=t, dur=9_500 * US + step % 101 * US)
        if not step % 10:
            yield Counters(t=t + 9_900 * US, counts={"ExecuteTime": step + 1, "CompileTime": 1})
        t += 10_000 * US
        step += 1


def hours() -> Iterator[AnyEvent]:
    """The same training for so long that after its beginning only sums of steps are recorded."""
    stream = training()
    yield from islice(stream, 1_000)
    step, t = 100, 2_000_000 * US
    while True:
        dur = 9_500 * US + step % 101 * US
        scopes = {"3": [1, 1_000 * US, 1_000 * US], "4": [1, 2_000 * US, 2_000 * US], "5": [1, 2_000 * US, 2_000 * US]}
        yield StepDigest(
            name=2, num=step, t=t, dur=dur, executions=1, busy=3_200 * US, tracing=3_500 * US, barriers=1,
            scopes=scopes, reads={"6:6": [1, 3_000 * US, 3_000 * US]},
        )  # fmt: skip
        t += 10_000 * US
        step += 1


def write(path: Path, stream: Iterator[AnyEvent], events: int) -> None:
    encode = msgspec.json.Encoder().encode
    with path.open("wb", buffering=1 << 20) as file:
        for event in islice(stream, events):
            file.write(encode(event))
            file.write(b"\n")


def measure(path: str) -> dict[str, float]:
    """Read and analyse ``path`` in this process, as ``xlaprof report`` does; then only read it, into columns."""
    from xlaprof import log
    from xlaprof.collection import no_collection
    from xlaprof.commands._loading import prepare
    from xlaprof.reports import fold

    begin = time.perf_counter()
    cpu = [time.process_time()]
    prepare(path)
    run, notes = fold(path)
    cpu.append(time.process_time())
    with no_collection():
        report = run.report(path, notes)
    seconds = time.perf_counter() - begin
    cpu.append(time.process_time())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    from xlaprof.columns.lines import columns_of  # later: importing numpy was part of the above

    cpu.append(time.process_time())
    with no_collection():
        for batch in log.read(path).batches():
            columns_of(batch)
    reading = time.process_time() - cpu[3]
    decoding = decode(path)
    scanning = scan(path)
    return {
        "events": report.run.events,
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu[2] - cpu[0], 3),
        "decoding_alone_s": round(decoding, 3),
        "scanning_alone_s": round(scanning, 3),
        "reading_s": round(reading, 3),
        "folding_s": round(cpu[1] - cpu[0] - reading, 3),
        "report_s": round(cpu[2] - cpu[1], 3),
        "peak_mb": round(peak, 1),
        "steps": sum(stat.count for stat in report.steps),
        "findings": len(report.findings),
    }


def decode(path: str) -> float:
    """CPU time of msgspec for the events of ``path``, and nothing else: what reading took if each line were decoded."""
    from xlaprof.collection import no_collection
    from xlaprof.events import kinds

    decoder = msgspec.json.Decoder(Union[tuple(kinds().values())])  # noqa: UP007
    begin = time.process_time()
    with open(path, "rb") as file, no_collection():
        while lines := file.readlines(1 << 18):
            decoder.decode_lines(b"".join(lines))
    return time.process_time() - begin


def scan(path: str) -> float:
    """CPU time of finding the lines of ``path`` and its digits, and nothing else: what any reading with numpy takes."""
    from xlaprof.collection import no_collection
    from xlaprof.columns.numbers import Text

    begin = time.process_time()
    with open(path, "rb") as file, no_collection():
        held = b""
        while piece := file.read(1 << 21):
            lines, _, rest = piece.rpartition(b"\n")
            Text(b"".join((held, lines, b"\n"))).without_digits()
            held = rest
    return time.process_time() - begin


def measure_hostile(events: int) -> dict[str, float]:
    """Fold so many events that hardly ever repeat, in this process."""
    from benchmarks._hostile import hostile
    from xlaprof.analysis.run import Run

    cpu = time.process_time()
    run = Run().feed_all(islice(hostile(), events))
    return {
        "events": run.events,
        "cpu_s": round(time.process_time() - cpu, 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "aim_mb": AIM_MB,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--log", help="measure this log instead of a made one")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", metavar="LOG", help=argparse.SUPPRESS)
    parser.add_argument("--digests", action="store_true", help="of most steps only sums")
    parser.add_argument("--hostile", action="store_true", help="fold events that hardly ever repeat")
    args = parser.parse_args()
    if args.hostile:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        measured = measure_hostile(args.events)
        print(
            json.dumps(measured)
            if args.json
            else f"{measured['events']:,} events that hardly repeat: {measured['cpu_s']:.1f} s of CPU, "
            f"peak {measured['peak_mb']:.0f} MB (aim {AIM_MB:.0f} MB)"
        )
        return 0
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.log or f"{folder}/run.log")
        if not args.log:
            write(path, hours() if args.digests else training(), args.events)
        child = subprocess.run(
            [sys.executable, __file__, "--measure", str(path)], check=True, capture_output=True, text=True
        )
        size = path.stat().st_size
    figures = json.loads(child.stdout) | {"log_mb": round(size / 1e6, 1), "aim_s": AIM_S, "aim_mb": AIM_MB}
    if args.json:
        print(json.dumps(figures))
    else:
        print(
            f"{figures['events']:,} events ({figures['log_mb']} MB, {figures['steps']:,} steps): "
            f"read and analysed in {figures['seconds']:.2f} s (aim {AIM_S:.0f} s; CPU {figures['cpu_s']:.2f} s: "
            f"reading {figures['reading_s']:.2f}, folding {figures['folding_s']:.2f}, "
            f"report {figures['report_s']:.2f}; to decode each line alone {figures['decoding_alone_s']:.2f}, "
            f"to find lines and digits alone {figures['scanning_alone_s']:.2f}), "
            f"peak {figures['peak_mb']:.0f} MB (aim {AIM_MB:.0f} MB)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
