"""What users wait for at the beginning: the time to the second step's end, beside torch.compile and eager PyTorch.

    OMP_NUM_THREADS=1 nice python benchmarks/first_step.py [NAME ...] [--json FILE]

Each cell is a process of its own that runs six steps: eager PyTorch; ``xla`` with an empty folder of programs, then
again with what the first run left there; inductor with an empty cache, then again. Printed are the seconds from the
first step's begin to the second's end (importing and building the model are before that), the programs that were
compiled, or found, with the seconds of that, and the milliseconds of a steady step (the least of the last three).
``--json`` writes all of it, CPU time (children's included: inductor starts compilers) beside. Progress, and what
failed, is told on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from first_programs import PROGRAMS

MODES = ("eager", "xla", "xla again", "inductor", "inductor again")
LIMIT_S = 900
TOLERANCE = 2e-2  # of the losses: six steps of float32 in another order


class Running:
    """One process: notes when each step ended."""

    count = 6

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.loss = torch.zeros(())
        self.marks: list[tuple[float, float]] = []  # wall and CPU s
        self.device = torch.device("xla" if mode == "xla" else "cpu")
        if mode == "xla":
            from xlaprof import import_hook

            import_hook.serve()  # as `xlaprof run` does: what asks for torch_xla, as transformers, finds the device
            import torch_xla

            self.sync: Any = lambda: torch_xla.sync(wait=True)
        else:
            self.sync = lambda: None

    def compiled(self, function: Any) -> Any:
        return torch.compile(function, backend="inductor") if self.mode == "inductor" else function

    def steps(self) -> Iterator[None]:
        self.ended()
        for _ in range(self.count):
            yield
            self.ended()

    def ended(self) -> None:
        self.sync()
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.marks.append((time.perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages)))


def measure(name: str, mode: str) -> dict[str, float]:
    """Run ``name`` here; what it took, and how its programs were come by."""
    torch.manual_seed(0)
    run = Running(mode)
    PROGRAMS[name](run)
    (wall, cpu), (wall_2, cpu_2) = run.marks[0], run.marks[2]
    ends = [mark[0] for mark in run.marks]
    found: dict[str, float] = {
        "to_second_s": wall_2 - wall,
        "cpu_to_second_s": cpu_2 - cpu,
        "steady_s": min(b - a for a, b in zip(ends[-4:], ends[-3:], strict=False)),
        "loss": run.loss.item(),
    }
    if mode == "xla":
        import xlaprof.runtime as xr

        count, total = (xr.metrics.metric_data("CompileTime") or (0, 0))[:2]
        found |= {"programs": count, "compile_s": total / 1e9}
    elif mode == "inductor":
        from torch._dynamo import utils

        taken = utils.compilation_time_metrics.get("_compile.compile_inner", [])
        found |= {"programs": utils.counters["stats"]["unique_graphs"], "compile_s": sum(taken)}
    return found


def row(name: str, mode: str, caches: Path) -> dict[str, float] | None:
    """The same in a process of its own, whose caches are in ``caches``; ``None`` if it failed."""
    environment = {
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its compilers are children, and no pool that outlives the steps
        **os.environ,
        "XLAPROF_CACHE_DIR": str(caches / "xla"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    began = time.perf_counter()
    print(f"{name}, {mode} ...", end="", flush=True, file=sys.stderr)
    command = [sys.executable, __file__, "--one", name, mode.split()[0]]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        failure = "" if done.returncode == 0 else (done.stderr.strip() or "nothing said").splitlines()[-1]
    except subprocess.TimeoutExpired:
        failure = f"not done in {LIMIT_S} s"
    print(f" {time.perf_counter() - began:.0f} s{f': FAILED: {failure}' if failure else ''}", file=sys.stderr)
    return None if failure else json.loads(done.stdout.splitlines()[-1])


def cell(found: dict[str, float] | None) -> str:
    if found is None:
        return "failed"
    programs = f" ({found['programs']:.0f}: {found['compile_s']:.1f})" if "programs" in found else ""
    return f"{found['to_second_s']:.2f}{programs}, {found['steady_s'] * 1e3:.0f}"


def main() -> int:
    """Print the table, or with ``--one`` what one process found; 1 if one failed or computed something else."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PROGRAMS)}; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured, program by program")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return 0
    if unknown := set(options.names) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}")
    found: dict[str, dict[str, dict[str, float] | None]] = {}
    wrong = False
    print("s to the second step (programs: s of compiling or finding them), ms of a steady step\n")
    print(f"| | {' | '.join(MODES)} |\n|---|{'---|' * len(MODES)}")
    for name in options.names or PROGRAMS:
        with tempfile.TemporaryDirectory() as caches:
            rows = found[name] = {mode: row(name, mode, Path(caches)) for mode in MODES}
        losses = [one["loss"] for one in rows.values() if one is not None]
        differ = len(losses) and max(losses) - min(losses) > TOLERANCE * abs(losses[0]) + 1e-4
        if differ:
            print(f"{name}: the modes compute other losses: {losses}", file=sys.stderr)
        wrong = wrong or bool(differ) or None in rows.values()
        print(f"| {name} | {' | '.join(cell(one) for one in rows.values())} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
