"""A loop takes another part of a tensor in each turn: a number for the host, or what the device computes with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import xlaprof.runtime as xr
from tests.advice.taken import findings, observe
from xlaprof.analysis.model import Finding

WHOLE = "Bring the whole tensor to the host once"


def part(value: int) -> torch.Tensor:
    return torch.randn(37, 9, generator=torch.Generator().manual_seed(value))


def trained() -> None:
    weights = part(0).to("xla")
    for turn in range(12):
        weights = weights - 0.1 * (weights + part(turn).to("xla")).tanh()
        xr.sync()


def occluded() -> None:
    """How much a network's answer moves where one sensor is silent."""
    trained()
    network, sensors, moved = torch.nn.Linear(9, 5).to("xla"), part(1).to("xla"), []
    with torch.no_grad():
        usual = network(sensors).tanh()
        for silent in range(6):
            heard = sensors.clone()
            heard[:, silent] = sensors[:, silent].mean()
            moved.append((network(heard).tanh() - usual).square().sum().item())


def correlated() -> None:
    """Each sensor's correlation with one value, of which a tensor is computed first."""
    sensors, value = part(2).to("xla"), part(3)[:, 0].to("xla")
    for one in range(6):
        centred = sensors[:, one] - sensors[:, one].mean()
        _ = (centred * value).mean().item()


def weighed() -> None:
    """A number is taken out, but what is read is computed of a tensor as well."""
    trained()
    sensors, weights = part(4).to("xla"), torch.rand(9).to("xla")
    for one in range(6):
        _ = (sensors.cos().sum() * weights[one]).item()


def compared() -> None:
    """Two numbers, of which one is computed that the host reads."""
    upper, lower = torch.rand(9).to("xla"), torch.rand(9).to("xla")
    for one in range(6):
        _ = (upper[one] - lower[one]).abs().item()


def entries() -> None:
    """Elements of a table, by row and column."""
    trained()
    table = part(5).to("xla")
    for one in range(6):
        _ = float(table[3 * one, one])


def ranked() -> None:
    """Rows, each of which the host reads as it is."""
    trained()
    scores = part(6).to("xla").sigmoid()
    xr.sync()
    for one in range(6):
        _ = max(scores[one].tolist())


def told(story: Callable[[], None], path: Path) -> list[Finding]:
    return [one for one in findings(observe(story, path / "run.log").events) if one.kind in ("recompile", "transfer")]


@pytest.mark.parametrize("story", [occluded, correlated, weighed])
def test_a_part_that_the_device_computes_with_is_chosen_by_a_tensor(story: Callable[[], None], tmp_path: Path) -> None:
    found = told(story, tmp_path)
    assert not any(WHOLE in one.advice for one in found)
    (finding,) = [one for one in found if one.kind == "recompile"]
    assert "index of aten::select" in finding.cause
    assert "a position that a tensor of one element holds" in finding.advice


@pytest.mark.parametrize("story", [compared, entries, ranked])
def test_elements_that_the_host_reads_come_with_their_tensor(story: Callable[[], None], tmp_path: Path) -> None:
    assert any(WHOLE in one.advice for one in told(story, tmp_path))
