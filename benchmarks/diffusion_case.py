"""The case study of Stable Diffusion: runs it as first written and with the report's advice taken, and tells the story.

    python benchmarks/diffusion_case.py [--steps 50] [--logs DIR] [--check]

examples/diffusion_before.py and examples/diffusion_after.py are recorded, each in a process of its own. The figures and
the reports go into docs/case-study-diffusion.md between their marks, the timelines to docs/pictures/. With ``--logs``
the recordings are kept there, and used again where they exist. ``--check`` writes nothing and fails where the story
does not hold: the loop without a barrier named, nothing found afterwards, the steps' graph compiled once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from timeline import Timeline

from xlaprof import log
from xlaprof.events import Compile, Execute
from xlaprof.text.quantities import duration

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "case-study-diffusion.md"
PICTURES = ROOT / "docs" / "pictures"
WIDTH = "100"


class Case(NamedTuple):
    """One of the two programs, recorded."""

    name: str
    log: Path
    report: dict[str, Any]  # its report as JSON
    text: str  # and for people
    compiles: list[Compile]
    runs: Counter[int]  # program -> times it ran
    timeline: Timeline

    @property
    def wall_s(self) -> float:
        """From when the device was known: what comes before is imports."""
        return (self.timeline.end - self.timeline.start) / 1e9

    @property
    def largest(self) -> Compile:
        return max(self.compiles, key=lambda compile: compile.ops)


def record(name: str, steps: int, folder: Path) -> Case:
    """Run the program, unless its recording is there already, and read what was recorded."""
    path = folder / f"{name}.log"
    script = ROOT / "examples" / f"diffusion_{name}.py"
    if not path.exists():
        _xlaprof("run", "--no-report", "-o", path.name, str(script), "--steps", str(steps), cwd=folder)
        path.write_text(path.read_text().replace(f"{ROOT}{os.sep}", ""))  # a page is read elsewhere
    report = json.loads(_xlaprof("report", "--json", path.name, cwd=folder))
    text = _xlaprof("report", path.name, cwd=folder)
    compiles, runs = [], Counter[int]()
    for event in log.read(path):
        if isinstance(event, Compile):
            compiles.append(event)
        elif isinstance(event, Execute):
            runs[event.program] += event.calls
    return Case(name, path, report, text, compiles, runs, Timeline(path))


def _xlaprof(*words: str, cwd: Path) -> str:
    environment = {**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "XLAPROF_CACHE_DIR": "off"}
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", *words], cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"xlaprof {' '.join(words)} failed with exit code {done.returncode}")
    return done.stdout


def wrong(before: Case, after: Case, steps: int) -> list[str]:
    """What does not hold of the story that the page tells."""
    kinds = {(finding["kind"], finding["function"]) for finding in before.report["findings"]}
    expected = {
        ("missing_barrier", "draw"),
        ("transfer", "watermark"),
        ("transfer", "LookedUpEuler.step"),
        ("transfer", "LookedUpEuler.scale_model_input"),
    }
    said = [f"before: no {kind} in {function}" for kind, function in sorted(expected - kinds)]
    said += [f"after: {found['kind']} at line {found['line']}" for found in after.report["findings"]]
    most, times = after.runs.most_common(1)[0]
    if times != 3 * steps:
        said.append(f"after: the program that ran most often, {most}, ran {times} times in {3 * steps} steps")
    return said


def figures(before: Case, after: Case, steps: int) -> str:
    """The table of the page."""
    predicted = before.report["predicted"]["gain_s"]
    measured = before.report["run"]["wall_s"] - after.report["run"]["wall_s"]
    often = after.runs.most_common(1)[0][0]
    step = next(one for one in after.compiles if one.program == often)
    rows = [
        ("graphs compiled", *(f"{len(case.compiles):,}" for case in (before, after))),
        ("time compiling", *(duration(sum(one.dur for one in case.compiles) / 1e9) for case in (before, after))),
        ("largest graph", *(f"{case.largest.ops:,} operations" for case in (before, after))),
        ("a denoising step", f"1/{steps} of the largest graph", f"{step.ops:,} operations, compiled once"),
        (
            "values read from the device",
            *(f"{case.report['counters']['TransferFromDeviceTime']:,}" for case in (before, after)),
        ),
        ("three pictures, imports apart", *(duration(case.wall_s) for case in (before, after))),
        ("findings", *(f"{len(case.report['findings'])}" for case in (before, after))),
    ]
    lines = [f"| three pictures of {steps} steps | before | after |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += [
        "",
        f"Predicted by the report of the first run: {duration(predicted)} less. Measured: {duration(measured)} less.",
    ]
    return "\n".join(lines)


def pictures(before: Case, after: Case) -> dict[str, str]:
    """File name -> SVG."""
    often = after.runs.most_common(1)[0][0]
    moments = [event.t for event in log.read(after.log) if isinstance(event, Execute) and event.program == often]
    middle = len(moments) // 2
    begin = (moments[middle] - after.timeline.start) / 1e9
    end = (moments[min(middle + 4, len(moments) - 1)] - after.timeline.start) / 1e9
    return {
        "diffusion-before.svg": before.timeline.svg("Before: one graph for all steps of a picture"),
        "diffusion-after.svg": after.timeline.svg("After: the step's graph is compiled once"),
        "diffusion-steps.svg": after.timeline.svg(
            "After, four steps: the device works while the host records", begin, end
        ),
    }


def filled(page: str, blocks: dict[str, str]) -> str:
    """The page with what stands between ``<!-- NAME -->`` and ``<!-- end -->`` replaced."""
    for name, text in blocks.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not marks.search(page):
            sys.exit(f"{PAGE}: no mark <!-- {name} -->")
        page = marks.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page)
    return page


def _quoted(text: str, first: str = "") -> str:
    """A report as a block of the page, from the line that begins with ``first``."""
    lines = text.rstrip("\n").split("\n")
    start = next((n for n, line in enumerate(lines) if first in line), 0) if first else 0
    return "\n".join(["```", *lines[start:], "```"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the story does not hold")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.logs or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        before, after = (record(name, args.steps, folder) for name in ("before", "after"))
        said = wrong(before, after, args.steps)
        print(figures(before, after, args.steps))
        for line in said:
            print(f"! {line}")
        if args.check:
            sys.exit(1 if said else 0)
        PICTURES.mkdir(exist_ok=True)
        for name, svg in pictures(before, after).items():
            (PICTURES / name).write_text(svg)
        blocks = {
            "figures": figures(before, after, args.steps),
            "before": _quoted(before.text, "findings"),
            "after": _quoted(after.text, "Steps"),
        }
        PAGE.write_text(filled(PAGE.read_text(), blocks))


if __name__ == "__main__":
    main()
