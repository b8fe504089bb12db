"""Advice on a read by what takes its value further on is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.advice.kept_values import loop
from tests.advice.taken import Case, take


def pace_of(x: Any) -> float:
    return 0.5 / (1 + x.norm().item())


def paced(n: int, x: Any) -> Any:
    pace = pace_of(x)
    half = pace / 2
    return x - half * x.tanh()


def paced_on_the_device(n: int, x: Any) -> Any:
    half = 0.5 / (1 + torch.linalg.vector_norm(x)) / 2
    return x - half * x.tanh()


def turned(n: int, x: Any) -> Any:
    by = int(x.sum()) % 4
    return torch.roll(x, by, 0)


def turned_on_the_device(n: int, x: Any) -> Any:
    by = x.sum().long() % 4
    return x.index_select(0, (torch.arange(4, device=x.device) - by) % 4)


def test_a_number_by_which_rows_are_turned_is_used_as_positions(tmp_path: Path) -> None:
    words = "Use the tensor itself in place of the number: as positions (torch.index_select"
    take(Case("a turn", "transfer", loop(turned), words, loop(turned_on_the_device)), tmp_path)


def test_a_step_size_that_stays_a_tensor_is_read_no_more(tmp_path: Path) -> None:
    """A helper returns the number, another line halves it, and a third computes with that: no step can do without."""
    words = "Compute with the tensor itself, on the device, in place of the number (`return x - half * x.tanh()`)"
    take(Case("a step size", "transfer", loop(paced), words, loop(paced_on_the_device)), tmp_path)
