"""Stable Diffusion as first written, and with the report's advice taken: the story of docs/case-study-diffusion.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from xlaprof import log
from xlaprof.analysis.run import Run
from xlaprof.events import Compile, Execute
from xlaprof.pages.json import to_json

ROOT = Path(__file__).parent.parent
PICTURES = 3


def recorded(name: str, steps: int, folder: Path) -> tuple[dict[str, Any], Path]:
    """The report of one of the two programs, and its recording."""
    path = folder / f"{name}.log"
    script = ROOT / "examples" / f"diffusion_{name}.py"
    command = [
        sys.executable,
        "-m",
        "xlaprof",
        "run",
        "--no-report",
        "-o",
        str(path),
        str(script),
        "--steps",
        str(steps),
    ]
    environment = {**os.environ, "TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("mean") == PICTURES
    return to_json(Run().feed_all(log.read(path)).report(str(path))), path


def line_of(name: str, code: str, nth: int = 0) -> int:
    """The ``nth`` line of a program that holds ``code``."""
    lines = (ROOT / "examples" / f"diffusion_{name}.py").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if code in line][nth]


def check_before(told: dict[str, Any], steps: int) -> None:
    found = {(finding["kind"], finding["line"]) for finding in told["findings"]}
    loop = line_of("before", "for t in tqdm(")
    assert ("missing_barrier", loop) in found
    assert ("recompile", loop) in found  # elements 0, 1, 2... of the time steps
    for nth in (0, 1):
        position = line_of("before", ".nonzero().item()", nth)
        assert ("fallback", position) in found  # the size of what nonzero selects
    assert ("transfer", line_of("before", "image.cpu().numpy()")) in found
    unrolled = next(finding for finding in told["findings"] if finding["kind"] == "missing_barrier")
    size = re.search(r"one graph of ([\d,]+) operations", unrolled["cause"])
    assert size is not None
    assert int(size[1].replace(",", "")) > 100 * steps
    looked_up = next(
        one
        for one in told["findings"]
        if one["kind"] == "transfer" and one["function"] == "LookedUpEuler.scale_model_input"
    )
    assert looked_up["count"] == PICTURES * steps
    assert "enumerate" in looked_up["advice"]
    assert told["predicted"]["gain_s"] >= 0.5 * unrolled["gain_s"] > 0


def check_after(told: dict[str, Any], path: Path, steps: int) -> None:
    assert not told["findings"]
    runs: Counter[int] = Counter()
    compiled: Counter[int] = Counter()
    for event in log.read(path):
        if isinstance(event, Execute):
            runs[event.program] += event.calls
        elif isinstance(event, Compile):
            compiled[event.program] += 1
    step, times = runs.most_common(1)[0]
    assert times == PICTURES * steps
    assert compiled[step] == 1
    assert len(compiled) <= 6  # weights, prompt, step, picture, and what is read at the end


@pytest.mark.slow
def test_few_steps_as_first_written(tmp_path: Path) -> None:
    told, _ = recorded("before", 4, tmp_path)
    check_before(told, 4)


@pytest.mark.slow
def test_few_steps_with_the_advice_taken(tmp_path: Path) -> None:
    told, path = recorded("after", 4, tmp_path)
    check_after(told, path, 4)


@pytest.mark.slow
def test_many_steps_before_and_after(tmp_path: Path) -> None:
    before, _ = recorded("before", 12, tmp_path)
    check_before(before, 12)
    (unrolled,) = (one for one in before["findings"] if one["kind"] == "missing_barrier")
    assert unrolled["count"] == 12
    after, path = recorded("after", 12, tmp_path)
    check_after(after, path, 12)
    gained = before["run"]["wall_s"] - after["run"]["wall_s"]
    assert gained > 0
