"""The examples: what is planted in one is found, on its line, and nothing is found in the other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import processes
import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 50

sys.path.insert(0, str(EXAMPLES))
import decoder_fixed  # noqa: E402
from tokenizer import Tokenizer  # noqa: E402


class Recorded(NamedTuple):
    losses: list[float]
    report: dict[str, Any]


def train(name: str, device: str, log: Path | None = None) -> list[float]:
    """Losses of the example ``name``, trained in a process of its own."""
    program = f"""
import contextlib, json, sys, torch, xlaprof
torch.set_num_threads(1)
sys.path.insert(0, {str(EXAMPLES)!r})
import {name}
if {device!r} == "xla":
    import xlaprof.runtime
with xlaprof.record({str(log)!r}) if {log is not None} else contextlib.nullcontext():
    losses = {name}.train({STEPS}, torch.device({device!r}))
print(json.dumps(losses))
"""
    done = processes.run("-c", program)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("examples")
    results: dict[str, Recorded] = {}

    def recorded(name: str) -> Recorded:
        if name not in results:
            log = folder / f"{name}.log"
            losses = train(name, "xla", log)
            command = [sys.executable, "-m", "xlaprof", "report", "--json", str(log)]
            results[name] = Recorded(
                losses, json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            )
        return results[name]

    return recorded


def line_of(name: str, code: str) -> int:
    """Number of the one line of the example that contains ``code``."""
    (line,) = (i for i, text in enumerate((EXAMPLES / f"{name}.py").read_text().splitlines(), 1) if code in text)
    return line


@pytest.mark.parametrize("name", [pytest.param("decoder", marks=pytest.mark.slow), "decoder_fixed"])
def test_losses_on_xla_are_those_of_torch_on_the_cpu(name, recorded):
    expected = train(name, "cpu")
    losses = recorded(name).losses
    assert len(losses) == len(expected) == STEPS
    assert max(abs(a - b) for a, b in zip(losses, expected, strict=True)) < 1e-4
    assert losses[-1] < losses[0] - 1, "it learns nothing"


PLANTED = [
    ("recompile", "tokens = torch.tensor("),  # where the shorter batch comes to the device
    ("transfer", "losses.append(loss.item())"),
    ("fallback", "torch.linalg.eigvals("),
]


@pytest.mark.parametrize(("kind", "code"), PLANTED)
def test_every_planted_mistake_is_found_on_its_line(kind, code, recorded):
    findings = [f for f in recorded("decoder").report["findings"] if f["kind"] == kind]
    assert (str(EXAMPLES / "decoder.py"), line_of("decoder", code)) in [(f["file"], f["line"]) for f in findings]


def test_the_scope_that_tokenizes_is_named_at_its_line_or_at_the_one_that_takes_most_of_it(recorded):
    (finding,) = (f for f in recorded("decoder").report["findings"] if f["kind"] == "idle_gap")
    assert finding["operation"] == "tokenize"
    line = line_of("decoder", "tokens = torch.tensor(")
    assert Path(finding["file"]).name == "tokenizer.py" or finding["line"] in (line - 1, line)


def test_nothing_else_is_found(recorded):
    findings = [f for f in recorded("decoder").report["findings"] if f["kind"] != "idle_gap"]
    assert {f["line"] for f in findings} == {line_of("decoder", code) for _, code in PLANTED}


def test_the_ragged_batch_is_told_by_its_shape(recorded):
    (finding,) = (f for f in recorded("decoder").report["findings"] if f["kind"] == "recompile")
    assert "[8," in finding["change"]["from"]
    assert "[5," in finding["change"]["to"]


def test_the_fixed_run_is_clean(recorded):
    report = recorded("decoder_fixed").report
    assert report["findings"] == []
    assert report["counters"]["ExecuteTime"] >= STEPS


@pytest.mark.slow
def test_the_demo_shows_both_runs_and_what_the_fixes_were_worth(tmp_path):
    command = [sys.executable, str(EXAMPLES / "demo.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = [done.stdout.index(kind) for kind in ("4 findings", "No findings", "Step time (median)")]
    assert shown == sorted(shown)
    assert {path.name for path in (tmp_path / "demo-output").iterdir()} == {"decoder.log", "decoder_fixed.log"}


def test_the_spectral_radius_without_eigenvalues_is_the_same_number():
    matrix = torch.randn(128, 128, generator=torch.Generator().manual_seed(0)) * 0.02
    expected = torch.linalg.eigvals(matrix).abs().max()
    torch.testing.assert_close(decoder_fixed.spectral_radius(matrix), expected, rtol=0.03, atol=0)


def test_tokens_spell_the_text():
    text = (EXAMPLES / "text.txt").read_text()
    tokenizer = Tokenizer(text)
    spelling = {i: bytes([i]) for i in range(256)}
    for (left, right), token in tokenizer.merges.items():
        spelling[token] = spelling[left] + spelling[right]
    tokens = tokenizer.encode(text)
    assert b"".join(spelling[t] for t in tokens) == text.encode()
    assert max(tokens) < tokenizer.vocabulary
    assert len(tokens) < 0.75 * len(text)
