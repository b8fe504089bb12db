"""Programs as people write them: do they compute what the CPU does, and is what xlaprof says of them of use?

    nice python benchmarks/wild.py [NAME ...] [--mode MODE] [--json] [--logs DIR]

Each program of ``benchmarks/wild`` (transformers' Trainer and generate(), pipelines of diffusers, loops of accelerate
and Lightning, scripts like nanoGPT's or PyTorch's examples, all with small random weights) runs on the CPU as it is,
and under ``xlaprof run`` in each mode: on ``xla``, and on the CPU under ``torch.compile`` with two backends.

A run is right if it computes the CPU's numbers (within 0.5 %), if at most a tenth of the time of its steps, and of the
device's idle time, has no known cause, and if no finding stands at a line that the user cannot change: of an
installed package, of Python, or of xlaprof. The exit code is 1 where one is not. A program whose packages are not
installed is left out. ``--logs`` keeps the recordings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "benchmarks" / "wild"
MODES = {"xla": ("xla", ""), "inductor": ("cpu", "inductor"), "aot_eager": ("cpu", "aot_eager")}
UNEXPLAINED = 0.10  # of the time of the steps, or of the device's idle time
_TOLERANCE = 5e-3
_LIMIT_S = 1200
#: parts of a path that no user changes
_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", f"{sysconfig.get_path('stdlib')}/", f"{ROOT}/xlaprof/")


class Program(NamedTuple):
    """A file of ``benchmarks/wild``, and what sets it apart from others that run the same file."""

    name: str
    file: str
    needs: tuple[str, ...] = ()  # packages
    environment: tuple[tuple[str, str], ...] = ()


def programs() -> list[Program]:
    """All of them, by name; those of which packages are missing are left out."""
    found = [
        Program(path.stem, path.name, tuple(_imports(path)))
        for path in sorted(PROGRAMS.glob("*.py"))
        if not path.name.startswith("_")
    ]
    generate = next(one for one in found if one.name == "generate")
    found.append(generate._replace(name="generate-static", environment=(("WILD_CACHE", "static"),)))
    return [one for one in found if all(find_spec(name) is not None for name in one.needs)]


def _imports(path: Path) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if (
            found := re.match(r"(?:from|import) (accelerate|diffusers|pytorch_lightning|transformers)\b", line)
        ) is not None:
            yield found[1]


class Run(NamedTuple):
    """One program in one mode, judged."""

    program: str
    mode: str
    wall_s: float = 0.0
    deviation: float = 0.0  # from the CPU's numbers, relative
    unexplained: float = 0.0  # the larger share: of the steps' time, of the idle time
    kinds: tuple[tuple[str, int], ...] = ()  # of findings, and how many
    misplaced: tuple[str, ...] = ()  # findings at lines that cannot be changed
    failed: str = ""

    @property
    def wrong(self) -> list[str]:
        """What is not right, in words."""
        said = [self.failed] if self.failed else []
        if self.deviation > _TOLERANCE:
            said.append(f"its numbers differ from the CPU's by {self.deviation:.1%}")
        if self.unexplained > UNEXPLAINED:
            said.append(f"{self.unexplained:.0%} of its time has no known cause")
        return [*said, *(f"misplaced: {finding}" for finding in self.misplaced)]


def environment(program: Program, device: str, backend: str) -> dict[str, str]:
    xla = "1" if device == "xla" else "0"  # where torch_xla can be imported, accelerate and transformers use it
    own = {
        "WILD_DEVICE": device,
        "WILD_BACKEND": backend,
        "PJRT_DEVICE": "CPU",
        "HF_HUB_OFFLINE": "1",
        "USE_TORCH_XLA": xla,
    }
    return {"OMP_NUM_THREADS": "1", "XLAPROF_CACHE_DIR": "off", **os.environ, **own, **dict(program.environment)}


def run(command: list[str], variables: dict[str, str]) -> str:
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            capture_output=True, text=True, check=False, cwd=elsewhere, timeout=_LIMIT_S, env=variables,
        )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or "no output").splitlines()
        named = [line for line in last if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
        raise ChildProcessError(f"exit code {done.returncode}: {(named or last)[-1]}")
    return done.stdout


def computed(output: str) -> list[float]:
    """The numbers in what a program printed."""
    lines = [line.removeprefix("computed ") for line in output.splitlines() if line.startswith("computed ")]
    if not lines:
        raise ChildProcessError("it printed no numbers")
    numbers: list[float] = json.loads(lines[-1])
    return numbers


def deviation(numbers: list[float], expected: list[float]) -> float:
    """The largest difference, relative to the number expected."""
    if len(numbers) != len(expected):
        return float("inf")
    return max(
        (abs(one - other) / max(abs(other), 1e-3) for one, other in zip(numbers, expected, strict=True)), default=0.0
    )


def unexplained(report: dict[str, Any]) -> float:
    """The share of the steps' time that is plain Python on no known line, or that of the device's idle time."""
    idle = report["idle"]
    causes = {one["cause"]: one["seconds"] for one in idle["causes"]}
    unknown = sum(seconds for cause, seconds in causes.items() if cause == "other" or cause.endswith(" unknown line"))
    shares = [unknown / idle["idle_s"] if idle["idle_s"] else 0.0]
    if report["steps"]["by_name"]:
        split = report["steps"]["by_name"][0]["split"]
        named = sum(seconds for cause, seconds in causes.items() if re.match(r"(python|waiting) \S+:\d", cause))
        shares.append(max(0.0, split["other_s"] - named) / split["total_s"] if split["total_s"] else 0.0)
    return max(shares)


def misplaced(report: dict[str, Any]) -> Iterator[str]:
    """Findings at lines that the user cannot change."""
    for one in report["findings"]:
        if any(part in one["file"] for part in _NOT_THE_USERS):
            yield f"{one['kind']} at {one['file']}:{one['line']}: {one['cause']}"


def judge(program: Program, mode: str, expected: list[float], logs: Path) -> Run:
    """Run one program in one mode, and judge what it computed and what is said of it."""
    log = logs / f"{program.name}.{mode}.log"
    try:
        command = ["-m", "xlaprof", "run", "--json", "-o", str(log), str(PROGRAMS / program.file)]
        numbers = computed(run(command, environment(program, *MODES[mode])))
        report = json.loads(log.with_suffix(".json").read_text())
    except (ChildProcessError, subprocess.TimeoutExpired, OSError) as error:
        return Run(program.name, mode, failed=str(error))
    return Run(
        program.name,
        mode,
        report["run"]["wall_s"],
        deviation(numbers, expected),
        unexplained(report),
        tuple(sorted(Counter(one["kind"] for one in report["findings"]).items())),
        tuple(misplaced(report)),
    )


def judged(chosen: list[Program], modes: list[str], logs: Path, console: Console) -> Iterator[Run]:
    """All runs, one after the other."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(chosen) * len(modes))
        for program in chosen:
            progress.update(task, description=f"{program.name} on the CPU")
            try:
                expected = computed(run([str(PROGRAMS / program.file)], environment(program, "cpu", "")))
            except (ChildProcessError, subprocess.TimeoutExpired) as error:
                progress.advance(task, len(modes))
                yield Run(program.name, "cpu", failed=str(error))
                continue
            for mode in modes:
                progress.update(task, description=f"{program.name}, {mode}")
                yield judge(program, mode, expected, logs)
                progress.advance(task)


def show(runs: list[Run], console: Console) -> None:
    """A table, and what is not right."""
    table = Table("program", "mode", "time", "off by", "unexplained", "findings", box=None, pad_edge=False)
    for run in runs:
        kinds = ", ".join(f"{count} {kind}" for kind, count in run.kinds)
        table.add_row(
            run.program, run.mode, f"{run.wall_s:.0f} s", f"{run.deviation:.2%}", f"{run.unexplained:.0%}",
            "failed" if run.failed else kinds or "none", style="red" if run.wrong else "",
        )  # fmt: skip
    console.print(table)
    for run in runs:
        for sentence in run.wrong:
            console.print(f"\n[bold]{run.program}, {run.mode}[/]: ", end="")
            console.print(sentence, markup=False, highlight=False)


def main() -> int:
    known = {program.name: program for program in programs()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all of them by default")
    parser.add_argument("--mode", action="append", choices=MODES, help="may be given several times")
    parser.add_argument("--json", action="store_true", help="the runs as JSON on standard output")
    parser.add_argument("--logs", type=Path, help="keep the recordings in this folder")
    options = parser.parse_args()
    if strange := [name for name in options.names if name not in known]:
        parser.error(f"no program {', '.join(strange)}: there are {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    console = Console(stderr=options.json)
    with tempfile.TemporaryDirectory() as scratch:
        logs = (options.logs or Path(scratch)).resolve()
        logs.mkdir(parents=True, exist_ok=True)
        runs = list(judged(chosen, options.mode or list(MODES), logs, console))
    if options.json:
        print(json.dumps([{**run._asdict(), "wrong": run.wrong} for run in runs], indent=2))
    else:
        show(runs, console)
    return int(any(run.wrong for run in runs))


if __name__ == "__main__":
    sys.exit(main())
