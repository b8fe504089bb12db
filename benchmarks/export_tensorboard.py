"""What ``xlaprof export --to tensorboard`` costs on a long log: CPU time, peak memory, and the size of what it writes.

    python benchmarks/export_tensorboard.py [--events 1000000]

The log is a training of many short steps, ten events each: scopes, a read, a barrier, an execution. Wanted: a million
events in 10 s of CPU and 300 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from xlaprof import events as ev

MS = 1_000_000
AIM_S, AIM_MB = 10.0, 300
LAYERS = [f"layer {i}" for i in range(6)]


def write_log(path: Path, events: int) -> int:
    """A log of about ``events`` events at ``path``; how many there are."""
    encode = msgspec.json.Encoder().encode
    names = ["train", "aten::_local_scalar_dense", "train.py", "main", "loss.item()", *LAYERS]
    count = 0
    with path.open("wb") as file:

        def put(event: ev.Event) -> None:
            nonlocal count
            file.write(encode(event) + b"\n")
            count += 1

        put(ev.Header(schema=ev.SCHEMA, pid=1, mono_ns=0, unix_ns=1_700_000_000 * 1000 * MS, host="box"))
        for id, text in enumerate(names, 1):
            put(ev.Text(id=id, text=text))
        put(ev.Stack(id=1, frames=[ev.Frame(file=3, line=44, func=4, code=5)]))
        step = 0
        while count < events:
            start = 4 * MS * step
            step += 1
            for i in range(len(LAYERS)):
                put(ev.Scope(name=6 + i, t=start + i * MS // 4, dur=MS // 5, stack=1))
            put(ev.TransferFromDevice(t=start + 2 * MS, dur=MS // 10, wait=MS // 20, bytes=4, op=2, stack=1))
            put(ev.Barrier(t=start + 2 * MS + MS // 5, dur=MS // 10, stack=1, ops=80, execution=step))
            busy = start + 2 * MS + MS // 4
            put(ev.Execute(seq=step, program=1, t=busy, start=busy, end=start + 4 * MS, stack=1))
            put(ev.Step(name=1, num=step, t=start, dur=4 * MS))
        put(ev.End(t=4 * MS * step))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "run.log"), Path(folder, "logdir")
        count = write_log(log, args.events)
        started = time.perf_counter()
        command = [sys.executable, "-m", "xlaprof", "export", str(log), "--to", "tensorboard", "-o", str(out)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        files = {file.name: file.stat().st_size / 1e6 for file in out.rglob("*") if file.is_file()}
        figures = {
            "events": count,
            "log_mb": round(log.stat().st_size / 1e6),
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),
            "wall_s": round(wall, 1),
            "peak_mb": round(used.ru_maxrss / 1024),
            "written_mb": round(sum(files.values())),
        }
    if args.json:
        print(json.dumps(figures))
        return
    print(
        f"{figures['events']:,} events, a log of {figures['log_mb']} MB: {figures['cpu_s']:.1f} s of CPU "
        f"(wanted {AIM_S:.0f}), {figures['wall_s']:.1f} s on the clock, "
        f"peak {figures['peak_mb']} MB (wanted {AIM_MB}); {figures['written_mb']} MB written"
    )


if __name__ == "__main__":
    main()
