"""A recorded program of very many small steps, and what became of its memory, its log and its clock.

    OMP_NUM_THREADS=1 python tests/soak.py --steps 1000000

A step has two scopes, records a few operations on ``xla``, and passes a barrier. Every 1,000 steps a value is read and
checked. Prints one line per tenth of the run, then what the log has of it, as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import xlaprof
import xlaprof.runtime as xr
from xlaprof.events import Barrier, Dropped, End, Execute, Scope, Step, StepDigest, Text


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def run(steps: int, log: Path) -> dict[str, Any]:
    """Take ``steps`` steps, recording into ``log``; memory and size of the log after each tenth."""
    memory, sizes = [], []
    x = torch.zeros(8, 8, device="xla")
    began, cpu = time.perf_counter_ns(), time.process_time()
    with xlaprof.record(log):
        for number in range(steps):
            with xlaprof.StepTrace("soak", step_num=number):
                with xlaprof.Trace("compute"):
                    x.add_(1).remainder_(997)
                with xlaprof.Trace("barrier"):
                    xr.sync()
            if (number + 1) % 1000 == 0:
                assert x[0, 0].item() == (number + 1) % 997
            if (number + 1) % max(steps // 10, 1) == 0:
                memory.append(resident())
                sizes.append(log.stat().st_size)
                print(f"{number + 1:>9,} steps  {memory[-1] / 1e6:7.1f} MB resident  {sizes[-1] / 1e6:7.1f} MB of log")
    ended = time.perf_counter_ns()
    return {
        "steps": steps,
        "began": began,
        "ended": ended,
        "cpu_us_per_step": (time.process_time() - cpu) / steps * 1e6,
        "resident": memory,
        "log": [*sizes, log.stat().st_size],
    }


def read(log: Path) -> dict[str, Any]:
    """What the log at ``log`` has: counts, times, and how the steps follow each other."""
    numbers_in_order = True
    steps = whole = barriers = executions = 0
    scopes: dict[int, int] = {}
    texts: dict[int, str] = {}
    first = last = overlapping = 0
    finished, dropped = False, 0
    reader = xlaprof.read(log)
    for event in reader:
        if isinstance(event, Text):
            texts[event.id] = event.text
        elif isinstance(event, (Step, StepDigest)):
            numbers_in_order &= event.num == steps
            overlapping += steps > 0 and event.t < last
            first = first or event.t
            steps, last = steps + 1, event.t + event.dur
            if isinstance(event, Step):
                whole += 1
                continue
            barriers, executions = barriers + event.barriers, executions + event.executions
            for name, (count, _, _) in event.scopes.items():
                scopes[int(name)] = scopes.get(int(name), 0) + count
        elif isinstance(event, Scope):
            scopes[event.name] = scopes.get(event.name, 0) + 1
        barriers += isinstance(event, Barrier)
        executions += isinstance(event, Execute)
        finished |= isinstance(event, End)
        dropped += event.count if isinstance(event, Dropped) else 0
    return {
        "steps": steps,
        "in_full": whole,
        "numbers_in_order": numbers_in_order,
        "overlapping": overlapping,
        "barriers": barriers,
        "executions": executions,
        "scopes": {texts[name]: count for name, count in scopes.items()},
        "first": first,
        "last": last,
        "finished": finished,
        "dropped": dropped,
        "notes": list(reader.notes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "soak.log"
        taken = run(options.steps, log)
        began = time.process_time()
        found = read(log)
        report = xlaprof.report(log)
        found["report"] = {one.name: one.count for one in report.steps}
        found["reading_s"] = time.process_time() - began
    print(json.dumps({"run": taken, "log": found}))


if __name__ == "__main__":
    main()
