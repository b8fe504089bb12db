"""Whether idle time is accounted for: planted gaps against what the report blames, and the window against a profiler's.

    python benchmarks/idle_accounting.py [--steps 12] [--json]

A small training whose loop sleeps in a scope, draws its data slowly, collects garbage, sleeps outside of any scope,
burns the processor and writes a checkpoint, each for a known time in each step, is recorded, and profiled by jax at
the same time. Compared are what was planted of each cause with what the report blames on it, and how long the device
was busy with what the profile says. The aim: each within 2 % of the window.
"""

from __future__ import annotations

import argparse
import gc
import glob
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AIM = 0.02  # of the window
WARM_UP = 3  # steps, and one that begins the profile
SLEEP_S, DATA_S, BURN_S, SCOPE_S = 0.030, 0.040, 0.025, 0.035


# -- the program that is observed: in a process of its own


def program(folder: str, steps: int) -> dict[str, float]:
    """Run it; seconds spent on each cause after the first execution, by this program's own clock."""
    import jax
    import torch

    import xlaprof
    import xlaprof.runtime as xr

    spent: dict[str, float] = {}

    def measured(name: str, since: float) -> None:
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - since

    def burn() -> None:
        since = time.perf_counter()
        total = 0
        while time.perf_counter() - since < BURN_S:
            for i in range(2_000):
                total += i
        measured("burn", since)

    def batches() -> Iterator[Any]:
        for _ in range(WARM_UP + steps):
            since = time.perf_counter()
            time.sleep(DATA_S)
            measured("data", since)
            yield torch.randn(64, 256)

    device = torch.device("xla")
    weight = torch.randn(256, 256, device=device)
    saved = torch.randn(2_500, 2_500)  # longer than a thread may keep the lock from the one that looks (5 ms)

    def step(x: Any) -> None:
        nonlocal weight
        weight = weight - 1e-3 * (x.to(device).t() @ (x.to(device) @ weight))
        xr.sync(wait=True)

    def work(batch: Any) -> None:
        since = time.perf_counter()
        with xlaprof.Trace("augment"):
            time.sleep(SCOPE_S)
        measured("scope", since)
        since = time.perf_counter()
        time.sleep(SLEEP_S)
        measured("sleep", since)
        burn()
        since = time.perf_counter()
        gc.collect()
        measured("gc", since)
        since = time.perf_counter()
        torch.save(saved, io.BytesIO())
        measured("checkpoint", since)
        step(batch)

    begin = 0
    with xlaprof.record(f"{folder}/run.log", detail="full"):
        gc.collect()
        gc.freeze()  # a collection looks at what follows only
        heap = [[i] for i in range(50_000)]
        gc.disable()
        for number, batch in enumerate(batches()):
            if number == WARM_UP:
                jax.profiler.start_trace(f"{folder}/profile")
                step(batch)
                spent.clear()
                begin = time.perf_counter_ns()
            elif number > WARM_UP:
                work(batch)
            else:
                step(batch)
        end = time.perf_counter_ns()
        jax.profiler.stop_trace()
    assert heap
    return {"begin": begin, "end": end, **spent}


# -- what is made of it


def account(folder: str) -> dict[str, Any]:
    """Planted, reported and profiled, seconds; and by how much of the window they differ."""
    from xlaprof import log
    from xlaprof.analysis.run import Run
    from xlaprof.events import Execute, Header

    planted: dict[str, float] = json.loads(Path(folder, "planted.json").read_text())
    begin, end = int(planted.pop("begin")), int(planted.pop("end"))
    events = list(log.read(f"{folder}/run.log"))
    # The window is that of the loop: what ran before it is left out, down to the execution that it begins with.
    first = max(event.end for event in events if isinstance(event, Execute) and event.end <= begin)
    kept = [event for event in events if not isinstance(event, Execute) or event.end >= first]
    report = Run().feed_all(kept).report()
    blamed = dict(report.idle.causes)

    def of(prefix: str) -> float:
        return sum(seconds for cause, seconds in blamed.items() if cause.startswith(prefix))

    reported = {
        "scope": of("scope augment"),
        "data": of("data wait"),
        "sleep": of("waiting idle_accounting"),
        "burn": of("python idle_accounting") + of("waiting for a processor"),
        "gc": of("garbage collection"),
        "checkpoint": of("checkpoint"),
    }
    window = report.idle.window_s
    header = next(event for event in events if isinstance(event, Header))
    profiled = _profiled(folder, header.unix_ns - header.mono_ns, first, end)
    ran = [(event.start, event.end) for event in kept if isinstance(event, Execute) and event.start >= first]
    return {
        "window_s": round(window, 4),
        "parts_sum_to_idle": abs(sum(blamed.values()) - report.idle.idle_s) < 1e-9,
        "causes": {
            name: {
                "planted_s": round(seconds, 4),
                "reported_s": round(reported[name], 4),
                "off": round(abs(reported[name] - seconds) / window, 4),
            }
            for name, seconds in planted.items()
        },
        "busy_s": round(sum(stop - start for start, stop in ran) / 1e9, 4),
        "profiled_busy_s": round(profiled, 4),
        "busy_off": round(abs(profiled - sum(stop - start for start, stop in ran) / 1e9) / window, 4),
        "aim": AIM,
    }


def _profiled(folder: str, to_unix: int, begin: int, end: int) -> float:
    """Seconds within ``[begin, end)`` in which jax's profile saw an operation of the device run."""
    from jax.profiler import ProfileData

    (path,) = glob.glob(f"{folder}/profile/plugins/profile/*/*.xplane.pb")
    data = ProfileData.from_file(path)
    spans: list[tuple[float, float]] = []
    offset = 0.0
    for plane in data.planes:
        if plane.name == "Task Environment":
            offset = next((float(value) for name, value in plane.stats if name == "profile_start_time"), 0.0)
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if any(name == "hlo_op" for name, _ in event.stats):
                    start = event.start_ns if event.start_ns > 1e18 else event.start_ns + offset
                    spans.append((start - to_unix, start + event.duration_ns - to_unix))
    busy, last = 0.0, float(begin)
    for start, stop in sorted(spans):
        start, stop = max(start, last), min(stop, float(end))
        if stop > start:
            busy += stop - start
            last = stop
    return busy / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--program", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.program:
        spent = program(args.program, args.steps)
        Path(args.program, "planted.json").write_text(json.dumps(spent))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, os.path.abspath(__file__), "--program", folder, "--steps", str(args.steps)], check=True
        )
        figures = account(folder)
    if args.json:
        print(json.dumps(figures))
        return 0
    print(f"window {figures['window_s']:.3f} s; aim: within {AIM:.0%} of it")
    for name, one in figures["causes"].items():
        print(f"{name:<12}planted {one['planted_s']:7.3f} s  blamed {one['reported_s']:7.3f} s  off {one['off']:.2%}")
    print(
        f"{'busy':<12}profile {figures['profiled_busy_s']:7.3f} s  told   {figures['busy_s']:7.3f} s  "
        f"off {figures['busy_off']:.2%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
