"""PyTorch/XLA's programs count here what they counted there: in strict mode all of it, else with reasons."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .page import page
from .programs import Counts, names, peer, run, run_file

#: run in the fast suite: a loop with reads, and a program without mistakes
FAST = {("log_every_n_item", True), ("grad_accum_if_fixed", False)}

MISTAKES = Path(__file__).parent / "eight_mistakes"

#: further counters that differ in the default mode, by program
_OTHERWISE = {
    "masked_loss": {"CachedCompile", "ExecuteTime", "TransferFromDeviceTime", "fallbacks"},
    "dynamo_print_item": {"CachedCompile", "MarkStep", "fallbacks"},
    "dynamo_print_item_fixed": {"MarkStep"},
    "warmup_lr_zero": {"CompileTime", "CachedCompile"},  # a learning rate of 0 is no graph of its own, and is sent
}


def _each(strict: bool) -> list[object]:
    return [pytest.param(n, marks=[] if (n, strict) in FAST else [pytest.mark.slow]) for n in names()]


@pytest.mark.parametrize("name", _each(True))
def test_strict_mode_counts_what_torch_xla_counted(name: str) -> None:
    assert run(name, strict=True) == peer(name)


@pytest.mark.parametrize("name", _each(False))
def test_the_default_counts_the_same_or_less(name: str) -> None:
    ours, there = run(name, strict=False), peer(name)
    differences = ours.differences(there)
    assert set(differences) <= {"TransferToDeviceTime", *_OTHERWISE.get(name, ())}
    if "CompileTime" not in differences:
        for column in ("ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime"):
            assert ours.counted[column] <= there.counted[column]
    else:
        assert ours.counted["CompileTime"] < there.counted["CompileTime"]


def test_every_difference_has_a_reason_on_the_page() -> None:
    less = Counts({**peer("masked_loss").counted, "ExecuteTime": 16}, {})
    text = page({"masked_loss": (peer("masked_loss"), less, peer("masked_loss"))})
    assert "| **16** (32) |" in text
    assert "- masked_loss: the size of a selection is counted on the device" in text
    unexplained = Counts({**peer("watermark_numpy").counted, "ExecuteTime": 1}, {})
    text = page({"watermark_numpy": (peer("watermark_numpy"), unexplained, peer("watermark_numpy"))})
    assert "NOT EXPLAINED" in text


@pytest.mark.slow
def test_eight_mistakes_count_the_same_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    run_file(MISTAKES / "mistakes.py", strict=True)
    ends = [line for line in capsys.readouterr().err.splitlines() if line.startswith("##### end")]
    assert ends == (MISTAKES / "expected.txt").read_text().splitlines()


@pytest.mark.slow
def test_the_command_line_asks_for_strict_mode(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch_xla.debug.metrics as met\n"
        "torch.ones(3).to('xla').nonzero()\nprint(met.executed_fallback_ops())\n"
    )
    run = [sys.executable, "-m", "xlaprof", "run", "--no-report", "-o", str(tmp_path / "run.log")]
    environment = {key: value for key, value in os.environ.items() if key != "XLAPROF_STRICT_PARITY"}
    for flags, printed in ([], "[]\n"), (["--strict-parity"], "['aten::nonzero']\n"):
        done = subprocess.run(
            [*run, *flags, str(script)], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        )
        assert done.stdout == printed
        (tmp_path / "run.log").unlink()
