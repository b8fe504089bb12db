"""Very many steps: each is in the log once, at its time, and neither memory nor the log grows faster than at first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("steps", [2_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_run_is_recorded_step_by_step_in_flat_memory(steps: int, capsys: pytest.CaptureFixture[str]) -> None:
    program = [sys.executable, "-W", "error", str(Path(__file__).with_name("soak.py")), "--steps", str(steps)]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    *figures, last = done.stdout.splitlines()
    with capsys.disabled():
        print("\n" + "\n".join(figures))
    run, log = (json.loads(last)[part] for part in ("run", "log"))

    assert (log["steps"], log["numbers_in_order"], log["overlapping"]) == (steps, True, 0)
    assert log["report"] == {"soak": steps}
    assert log["scopes"] == {"compute": steps, "barrier": steps}
    assert (log["barriers"], log["executions"]) == (steps, steps + steps // 1000)  # one value read in a thousand
    assert (log["finished"], log["dropped"], log["notes"]) == (True, 0, [])
    assert run["began"] <= log["first"] < log["last"] <= run["ended"]

    assert run["log"][-1] < 600 * steps  # 200 bytes; 1,100 for one that is slower than usual
    assert run["resident"][-1] < 1.01 * run["resident"][1]
