"""Advice on operations that run on the CPU, or select by values, is taken: the device computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.advice.taken import Case, take
from tests.advice.test_reads import Step, loop


def masked_loss(n: int, x: Any) -> Any:
    logits, tags, mask = x, torch.zeros(4, dtype=torch.long).to("xla"), x[:, 0] > 1
    return F.cross_entropy(logits[mask], tags[mask])


def ignored(n: int, x: Any) -> Any:
    logits, tags, mask = x, torch.zeros(4, dtype=torch.long).to("xla"), x[:, 0] > 1
    tags = tags.masked_fill(~mask, -100)
    return F.cross_entropy(logits.flatten(0, -2), tags.flatten(), ignore_index=-100)


def distinct(n: int, x: Any) -> Any:
    return torch.unique_consecutive(x.flatten().long())


def neighbours(n: int, x: Any) -> Any:
    values = x.flatten().long().sort().values
    new = torch.cat([torch.ones(1, dtype=torch.bool, device="xla"), values[1:] != values[:-1]])
    return torch.zeros_like(values).scatter_reduce(0, new.long().cumsum(0) - 1, values, "amax")


def repeated(**options: int) -> Step:
    def step(n: int, x: Any) -> Any:
        return x.repeat_interleave(torch.tensor([1, 2, 3, 2]).to("xla"), 0, **options)

    return step


def solved(n: int, x: Any) -> Any:
    return torch.linalg.ldl_solve(x, torch.arange(1, 5).to("xla"), x)


def solved_before() -> None:
    x = torch.ones(4, 4).to("xla")
    y = solved(0, x)
    loop(lambda n, x: x + y)()


FALLBACKS = [
    Case(
        "a selection",
        "fallback",
        loop(lambda n, x: x[x > 1].sum()),
        "Use a mask (torch.where",
        loop(lambda n, x: torch.where(x > 1, x, 0).sum()),
    ),
    Case("selected rows of a loss", "fallback", loop(masked_loss), "masked_fill, ignore_index)", loop(ignored)),
    Case(
        "counts of values",
        "fallback",
        loop(lambda n, x: torch.bincount(x.flatten().long(), minlength=40)),
        "Count into a tensor of fixed length",
        loop(
            lambda n, x: torch.zeros(40, device="xla").index_add_(0, x.flatten().long(), torch.ones(16, device="xla"))
        ),
    ),
    Case(
        "distinct values",
        "fallback",
        loop(distinct),
        "Sort and compare neighbours into a tensor of fixed length",
        loop(neighbours),
    ),
    Case(
        "repeats",
        "fallback",
        loop(repeated()),
        "Keep the sum of the repeats fixed, and pass it",
        loop(repeated(output_size=8)),
    ),
    Case("an operation in the loop", "fallback", loop(solved), "or move it out of the loop.", solved_before),
    Case(
        "an operation that is not the device's",
        "fallback",
        loop(solved),
        " by operations that run on the device",
        loop(lambda n, x: torch.linalg.solve_ex(x, x)),
    ),
    Case(
        "eigenvalues",
        "fallback",
        loop(lambda n, x: torch.linalg.eigvals(x + x.T)),
        "Use torch.linalg.eigh if the matrix is symmetric",
        loop(lambda n, x: torch.linalg.eigh(x + x.T)),
    ),
]


@pytest.mark.parametrize("case", FALLBACKS, ids=lambda case: case.name)
def test_an_operation_stays_on_the_device(case: Case, tmp_path: Path) -> None:
    take(case, tmp_path)
