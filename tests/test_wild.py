"""Programs as people write them compute what the CPU does on ``xla``, and each finding is at a line of theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import wild  # noqa: E402

FAST = ("trainer_bert",)


def judge(program: wild.Program, mode: str, folder: Path) -> wild.Run:
    expected = wild.computed(wild.run([str(wild.PROGRAMS / program.file)], wild.environment(program, "cpu", "")))
    return wild.judge(program, mode, expected, folder)


@pytest.mark.slow
@pytest.mark.parametrize("program", [one for one in wild.programs() if one.name in FAST], ids=lambda one: one.name)
def test_a_program_of_a_library_on_xla(program: wild.Program, tmp_path: Path) -> None:
    run = judge(program, "xla", tmp_path)
    assert run.wrong == []
    assert dict(run.kinds)["recompile"] >= 1, "its last batch is smaller"


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(wild.MODES))
@pytest.mark.parametrize("program", wild.programs(), ids=lambda one: one.name)
def test_every_program_in_every_mode(program: wild.Program, mode: str, tmp_path: Path) -> None:
    assert judge(program, mode, tmp_path).wrong == []


def report(causes: dict[str, float], other_s: float, file: str = "/home/ada/train.py") -> dict[str, Any]:
    return {
        "idle": {"idle_s": sum(causes.values()), "causes": [{"cause": c, "seconds": s} for c, s in causes.items()]},
        "steps": {"by_name": [{"split": {"other_s": other_s, "total_s": 10.0}}]},
        "findings": [{"kind": "transfer", "file": file, "line": 3, "cause": "It reads."}],
    }


def test_time_without_a_known_cause_is_found_out() -> None:
    assert wild.unexplained(report({"compile": 9.0, "other": 1.0}, 0.0)) == pytest.approx(0.1)
    assert wild.unexplained(report({"compile": 6.0, "python at an unknown line": 4.0}, 0.0)) == pytest.approx(0.4)
    assert wild.unexplained(report({"compile": 9.0}, 5.0)) == pytest.approx(0.5)
    assert wild.unexplained(report({"compile": 5.0, "python train.py:3-9": 4.0}, 5.0)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("file", "is_misplaced"),
    [
        ("/home/ada/train.py", False),
        ("", False),
        ("/venv/lib/python3.11/site-packages/transformers/trainer.py", True),
        (str(ROOT / "xlaprof" / "commands" / "run.py"), True),
        (str(ROOT / "benchmarks" / "wild" / "gan.py"), False),
        (pytest.__file__.replace("site-packages", "dist-packages"), True),
    ],
)
def test_a_finding_where_nobody_can_change_anything_is_found_out(file: str, is_misplaced: bool) -> None:
    assert bool(list(wild.misplaced(report({"compile": 1.0}, 0.0, file)))) is is_misplaced


def test_other_numbers_than_the_cpus_are_found_out() -> None:
    assert wild.deviation([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert wild.deviation([1.0, 2.1], [1.0, 2.0]) == pytest.approx(0.05)
    assert wild.deviation([1.0], [1.0, 2.0]) == float("inf")
    run = wild.Run("gan", "xla", deviation=0.05, unexplained=0.2, misplaced=("transfer at x.py:1",))
    assert len(run.wrong) == 3
