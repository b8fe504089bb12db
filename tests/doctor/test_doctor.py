"""``xlaprof doctor`` on programs in which a layer has a planted fault, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import processes
import pytest

from xlaprof.cli import main
from xlaprof.doctor import ladder

DECOMPOSITION = """
import torch
import torch._inductor.decomposition as table
table.decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) * 1.02

def block(x, w):
    return torch.nn.functional.silu(x @ w).sum()

compiled = torch.compile(block)
x, w = torch.randn(6, 4), torch.randn(4, 3, requires_grad=True)
for _ in range(3):
    compiled(x, w).backward()
"""

INDUCTOR = """
import torch
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = {fault!r}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))) * 3

net = torch.compile(Net())
for _ in range(4):
    net(torch.randn(5, 8)).sum().backward()
"""


def doctor(program: str, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "xlaprof", "doctor", *options, "train.py"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """``xlaprof doctor`` here, and its processes forked from one that has imported torch.compile: by itself each takes
    six seconds to."""

    def python(
        arguments: Sequence[str], output: Path, limit: float, tell: object, environment: Mapping[str, str]
    ) -> int:
        done = processes.run(*arguments, env=environment)
        output.write_text(done.stdout + done.stderr)
        return done.returncode

    def doctor(program: str, *options: str) -> int:
        (tmp_path / "train.py").write_text(program)
        return main(["doctor", *options, "train.py"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ladder, "python", python)
    return doctor


def diagnosed(program: str, tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = doctor(program, tmp_path, "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_decomposition_that_is_wrong_is_found_at_its_layer(
    tmp_path: Path, forked: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    layers = "aot_eager,aot_eager_decomp_partition"
    assert forked(DECOMPOSITION, "--json", "--layers", layers, "--no-minify") == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["numbers"] for one in found["layers"]] == ["unknown", "right", "wrong"]
    (verdict,) = found["verdicts"]
    assert (verdict["what"], verdict["layer"]) == ("numbers", 'backend="aot_eager_decomp_partition"')
    assert "at train.py:7: output 0 has a relative error of 2.0e-02" in verdict["text"]
    assert (tmp_path / "doctor-1" / "aot_eager_decomp_partition" / "graph-0" / "whole.py").exists()


def test_what_dynamo_cannot_capture_fails_at_its_layer(
    tmp_path: Path, forked: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    program = """
import torch

def block(x):
    print("inside")
    return x.sum()

torch.compile(block, fullgraph=True)(torch.randn(3))
"""
    assert forked(program, "--layers", "eager", "-o", "seen") == 1
    page = " ".join(capsys.readouterr().out.split())
    assert 'fails under backend="eager" at train.py:8: Unsupported: Failed to trace builtin operator.' in page
    assert "`print`" in page
    assert "Fix: Take fullgraph=True away" in page
    assert "inside" in (tmp_path / "seen" / "plain" / "output.txt").read_text()


def test_a_program_that_fails_anyway_is_not_looked_into(
    forked: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert forked("import torch\ntorch.compile(lambda x: x)(torch.ones(2))\nraise ValueError('no data')\n") == 2
    out, err = capsys.readouterr()
    assert "the program fails without torch.compile at train.py:3: ValueError: no data" in err
    assert out == ""


def test_a_program_that_compiles_nothing_is_told_so(
    forked: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert forked("import torch\nprint(torch.ones(2))\n") == 2
    assert "the program calls nothing that torch.compile has compiled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--layers", "inducter", "x.py"], "did you mean 'inductor'?"),
        (["--timeout", "-1", "x.py"], "'-1' is not a number of seconds"),
        (["nowhere.py"], "no such script: nowhere.py"),
        ([], "nothing to run"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xlaprof", "doctor", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis.txt").write_text("mine")
    done = doctor(DECOMPOSITION, tmp_path, "-o", "kept")
    assert done.returncode == 2
    assert "kept is there already" in done.stderr


@pytest.mark.slow
def test_a_layer_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock on which its time is up when a hundred calls have been seen."""
    (tmp_path / "train.py").write_text("""
import torch

def block(x):
    return x + 1

compiled = torch.compile(block)
while compiled(torch.ones(3)) is not None and torch._dynamo.utils.counters["stats"]["unique_graphs"]:
    pass
""")
    lines = tmp_path / "seen" / "eager" / "seen.jsonl"

    def monotonic() -> float:
        return 30.0 if lines.exists() and lines.read_text().count('"call"') > 100 else 0.0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ladder, "time", SimpleNamespace(monotonic=monotonic))
    assert main(["doctor", "--json", "--layers", "eager", "--timeout", "30", "-o", "seen", "train.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in found["verdicts"]] == ["time"]
    assert len(found["layers"][1]["calls"]) > 100


@pytest.mark.slow
def test_wrong_code_of_inductors_is_made_one_operation_that_runs_alone(tmp_path: Path) -> None:
    code, found = diagnosed(INDUCTOR.format(fault="accuracy"), tmp_path)
    assert code == 1
    assert [one["numbers"] for one in found["layers"][2:]] == ["right", "right", "wrong", "right"]
    assert [(one["what"], one["layer"]) for one in found["verdicts"]] == [("numbers", 'backend="inductor"')]
    made = found["reproducer"]
    assert (made["operations"], made["fails"]) == (1, "yes")
    alone = subprocess.run([sys.executable, made["file"]], capture_output=True, text=True)
    assert alone.returncode == 1
    assert "relative error" in alone.stdout
    assert "xlaprof" not in Path(made["file"]).read_text().partition('"""\n')[2].partition('"""')[2]


@pytest.mark.slow
def test_code_that_does_not_compile_is_made_one_operation_too(tmp_path: Path) -> None:
    code, found = diagnosed(INDUCTOR.format(fault="compile_error"), tmp_path, "--layers", "inductor")
    assert code == 1
    (verdict,) = found["verdicts"]
    assert verdict["what"] == "crash"
    assert "CppCompileError" in verdict["text"]
    assert (found["reproducer"]["operations"], found["reproducer"]["fails"]) == (1, "yes")
