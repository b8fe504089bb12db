"""Benchmarks of what a recording promises start, and tell of what they measured; their figures are no test's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def told(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / f"{name}.py"), *arguments]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=600
    )
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_observing_torch_compile_costs() -> None:
    out = told("dynamo_observe", "--backends", "eager", "--rounds", "1", "--turns", "2", "--compilations", "2")
    assert re.search(r"recording on / off: \d\.\d{4} \(\d\.\d{4} to \d\.\d{4} with 90 % of 2 pairs", out)
    assert re.search(r"xlaprof writer +0\.0 +[\d.]+", out), "its thread was there in the round with a recording only"
    assert re.search(r"tracing only +[\d.]+ s of CPU, recorded +[\d.]+ s .* median of 2 pairs", out)


@pytest.mark.slow
def test_how_soon_a_compilation_is_known() -> None:
    out = told("live_findings", "--sources", "jax", "--functions", "1")
    rows = dict(re.findall(r"^jax +(the [a-z ]+?)  +(?:[\d.-]+ +){2}\d+ of (\d+)$", out, re.MULTILINE))
    assert int(rows["the line in the log"]) >= 11, "each compilation of the function, and others"
    assert int(rows["the finding in a report"]) >= 5
    assert rows["the warning"] == "1"
