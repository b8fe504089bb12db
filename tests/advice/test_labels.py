"""Batches of two widths, in training and in an evaluation: one cause; labels are padded with what is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import xlaprof.runtime as xr
from tests.advice.recompiled_programs import DEVICE
from tests.advice.taken import findings, observe
from xlaprof.analysis.model import Finding

LEADS, MARKS, NONE = 3, 5, 9


def recordings(width: int, count: int) -> list[tuple[Any, Any]]:
    """Heartbeats of some leads, whose samples are marked; what lies behind a recording's end has the mark NONE."""
    ends = torch.full((4, 8), NONE)
    return [
        (torch.randn(4, width, LEADS), torch.cat((torch.randint(MARKS, (4, width - 8)), ends), 1)) for _ in range(count)
    ]


def program(train: tuple[int, ...], test: tuple[int, ...]) -> None:
    net = nn.Sequential(nn.Linear(LEADS, 16), nn.Tanh(), nn.Linear(16, MARKS)).to(DEVICE)
    xr.sync()
    for width in train:
        for beat, marks in recordings(width, 2):
            beat, marks = beat.to(DEVICE), marks.to(DEVICE)
            scores = net(beat)
            loss = F.cross_entropy(scores.flatten(0, 1), marks.flatten(), ignore_index=NONE)
            loss.backward()
            xr.sync()
    right = torch.zeros((), device=DEVICE)
    xr.sync()
    with torch.no_grad():
        for width in test:
            for beat, marks in recordings(width, 2):
                beat, marks = beat.to(DEVICE), marks.to(DEVICE)
                right += (net(beat).argmax(-1) == marks).sum()
                xr.sync()


def sizes_of(path: Path, train: tuple[int, ...], test: tuple[int, ...]) -> list[Finding]:
    events = observe(lambda: program(train, test), path, strict=True).events
    return [one for one in findings(events) if one.kind == "recompile"]


def test_two_widths_of_a_training_and_its_evaluation_are_one_finding(tmp_path: Path) -> None:
    (found,) = sizes_of(tmp_path / "run.log", (80, 48), (80, 48))
    assert "Pad dimension 1 to 80 in every step." in found.advice
    assert "Where both are meant, leave them: in a longer run they pay" in found.advice
    assert "The same is due to what test_labels.py:44 brings to the device." in found.advice
    assert found.count == 2


def test_other_widths_in_the_evaluation_are_a_cause_of_their_own_and_odd_ones_were_not_meant(tmp_path: Path) -> None:
    found = sizes_of(tmp_path / "run.log", (81, 50), (80, 48))
    assert len(found) == 2
    assert ["Where both are meant" in one.advice for one in sorted(found, key=lambda one: one.place.line)] == [
        False,
        True,
    ]


def test_labels_are_padded_with_the_one_that_the_loss_ignores(tmp_path: Path) -> None:
    """With 0, which is a mark, more samples would count."""
    (found,) = sizes_of(tmp_path / "run.log", (80, 48), (80, 48))
    assert "labels that are ignored (ignore_index: -100, unless another is given) in the padding before" in found.advice
    ((beat, marks),) = recordings(48, 1)
    padded = {"torch": torch, "beat": beat, "marks": marks, "NONE": NONE}
    exec(found.remedy, padded)
    assert padded["beat"].shape == (4, 80, LEADS)
    net = nn.Linear(LEADS, MARKS)

    def loss(beat: Any, marks: Any) -> float:
        return F.cross_entropy(net(beat).flatten(0, 1), marks.flatten(), ignore_index=NONE).item()

    assert loss(padded["beat"], padded["marks"]) == pytest.approx(loss(beat, marks), rel=1e-5)
    assert (padded["marks"] != NONE).sum() == (marks != NONE).sum()
