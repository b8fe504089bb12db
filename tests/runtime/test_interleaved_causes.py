"""Several switches of one program that are thrown independently: each graph says which one made it new."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import xlaprof.runtime as xr
from xlaprof import log
from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.runtime.tape import tapes

from .recorded_programs import record


@pytest.fixture(autouse=True)
def with_no_trace_of_other_tests() -> None:
    """A new graph is compared with those that ran before: with this test's alone."""
    xr.sync()
    for tape in tapes.existing():
        tape.forget()


def analysed(path: Path) -> Report:
    run = Run()
    run.feed_all(log.read(path))
    return run.report(str(path))


def test_each_of_three_switches_has_its_finding_and_they_bear_all_of_the_cost(tmp_path: Path) -> None:
    x = torch.ones(3, 41).to("xla")
    flips = [False, True, True, False, False, True, False, True] * 4

    def story() -> None:
        for step in range(32):
            y = x.sinh()
            if flips[step]:
                y = y.flip(1)
            loss = y.cosh().sum()
            if step % 3 == 1:
                loss = loss + x.pow(2).mean()
            if step >= 16:
                loss = loss * 0.75 + y.tanh().sum()
            xr.sync()

    record(tmp_path / "run.log", story)
    report = analysed(tmp_path / "run.log")
    lines = {finding.place.code: finding for finding in report.findings if finding.kind == "recompile"}
    assert set(lines) == {"y = y.flip(1)", "loss = loss + x.pow(2).mean()", "loss = loss * 0.75 + y.tanh().sum()"}
    first = min(report.compilation.programs, key=lambda program: program.program)
    assert sum(finding.cost_s for finding in lines.values()) == pytest.approx(
        report.compilation.total_s - first.compile_s
    )


def test_a_choice_in_every_pass_of_a_loop_is_one_cause_whatever_was_chosen(tmp_path: Path) -> None:
    x = torch.ones(3, 43).to("xla")
    # the same choices in another order, all of one kind, and one that came back
    sequences = ["+-++", "-+++", "++++", "----", "+-++", "+--+", "-+-+"]

    def story() -> None:
        for sequence in sequences:
            y = x.sinh()
            for turn in sequence:
                y = torch.tanh(y * 0.5)
                y = y.cosh() if turn == "+" else y.flip(1)
            xr.sync()
            del y

    record(tmp_path / "run.log", story)
    (finding,) = [one for one in analysed(tmp_path / "run.log").findings if one.kind == "recompile"]
    assert finding.place.code == 'y = y.cosh() if turn == "+" else y.flip(1)'
    assert finding.count == len(set(sequences)) - 1
    assert "In each pass of the loop (for turn in sequence)" in finding.cause
    assert "decides what is done" in finding.cause
    assert "went from" not in finding.cause, "it had four passes always"


def test_how_many_rows_a_mask_selects_varies_for_itself_and_what_has_one_size_is_padded_together(
    tmp_path: Path,
) -> None:
    weight, seed = torch.ones(3, 2).to("xla").requires_grad_(), torch.ones(1, 3).to("xla")
    rows, links, kept = [11, 8, 11, 9, 8, 9], [9, 9, 7, 6, 6, 7], [5, 5, 4, 6, 3, 2]

    def story() -> None:
        for n, m, k in zip(rows, links, kept, strict=True):
            batch = torch.ones(n, 3), torch.arange(n) < k, torch.ones(m, 3), torch.ones(m, 2)
            points, valid, pairs, weights = (one.to("xla") for one in batch)
            score = torch.mm(points, weight).sum(1)
            score = score + torch.mm(torch.cat([seed, pairs])[1:], weight).mul(weights).mean()
            score[valid].square().mean().backward()
            with torch.no_grad():
                weight.sub_(weight.grad, alpha=0.1)
            weight.grad = None
            xr.sync()

    record(tmp_path / "run.log", story)
    report = analysed(tmp_path / "run.log")
    by_code = {(one.kind, one.place.code): one for one in report.findings}
    selection = "score[valid].square().mean().backward()"
    sizes = by_code["recompile", 'points, valid, pairs, weights = (one.to("xla") for one in batch)']
    counts = by_code["recompile", selection]
    (reads,) = counts.parts
    assert "The size of the result of aten::index, which values decide" in counts.cause
    assert "dimension 0 of points and dimension 0 of valid to 11" in sizes.advice
    assert "dimension 0 of pairs and dimension 0 of weights to 9" in sizes.advice
    assert "valid = torch.nn.functional.pad(valid, (0, size - valid.shape[0]))" in sizes.remedy
    alone = [program for program in report.compilation.programs if program.trigger == "read"]
    assert reads.count == len(rows)
    spent = sizes.cost_s + counts.cost_s - reads.cost_s + sum(program.compile_s for program in alone)
    assert spent <= report.compilation.total_s  # no graph is in two costs


def test_numbers_that_are_special_in_the_same_graph_are_told_together(tmp_path: Path) -> None:
    x = torch.ones(3, 47).to("xla")

    def story() -> None:
        for turn in range(6):
            left = 5 - turn
            y = x.tanh() * torch.tensor(float(left)).to("xla")
            y = y + torch.tensor(1 - left / 10).to("xla")
            xr.sync()
            del y

    record(tmp_path / "run.log", story)
    (finding,) = (one for one in analysed(tmp_path / "run.log").findings if "exactly 1.0 and 0.0 are" in one.cause)
    assert "That alone is not enough: the same graphs have other such numbers" in finding.advice
    assert "y = y + torch.tensor(1 - left / 10)" in finding.advice
