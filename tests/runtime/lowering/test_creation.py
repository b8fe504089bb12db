"""Tensors made from nothing, joined, repeated and padded."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .harness import check


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.uint8]
)
def test_constants(dtype: torch.dtype) -> None:
    def story() -> None:
        x = torch.zeros(2, 3, dtype=dtype)
        torch.ones(0, dtype=dtype), torch.eye(3, 4, dtype=dtype)
        torch.full((2, 2), 7.5 if dtype.is_floating_point else 1, dtype=dtype)
        torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 3)
        x.new_zeros(2), x.new_ones(2), x.new_full((2,), 5)
        torch.empty(3, dtype=dtype), torch.empty_like(x), x.new_empty(3)
        x.clone(), x.fill_(1), x.zero_()
        torch.tril(x + 1), torch.triu(x + 1, 1)

    check(story)


def test_ranges_hit_their_ends() -> None:
    def story() -> None:
        torch.arange(5), torch.arange(5.0), torch.arange(2, 17, 3), torch.arange(5, -5, -2)
        torch.arange(0, 1, 0.1), torch.arange(0, 1, 0.1, dtype=torch.float64), torch.arange(1, 3, 0.7)
        torch.arange(2**53, 2**53 + 3)
        torch.arange(3, dtype=torch.bfloat16)
        torch.linspace(0, 1, 7), torch.linspace(-3, 11, 1), torch.linspace(1, 0, 0), torch.linspace(0, 10, 5).long()
        torch.linspace(0, 10, 4, dtype=torch.int64), torch.linspace(0, 1, 11, dtype=torch.float64)
        torch.linspace(torch.tensor(0.5), torch.tensor(2.5), 5)
        torch.logspace(0, 3, 5), torch.logspace(0, 3, 4, base=2)
        torch.tril_indices(3, 4, 1), torch.triu_indices(4, 3, -1)
        torch.arange(1_000_001)[-1], torch.linspace(0, 1, 100_001)

    check(story)


def test_integers_between_two_ends_are_truncated_as_on_the_cpu() -> None:
    def story() -> None:
        torch.linspace(0, 7, 50, dtype=torch.int64), torch.linspace(15, -55, 51, dtype=torch.int64)
        torch.linspace(42, -28, 59, dtype=torch.int64), torch.linspace(-53, 43, 59, dtype=torch.int32)
        torch.linspace(39, -55, 47, dtype=torch.int64), torch.linspace(37, -3, 31, dtype=torch.int64)

    check(story)


def test_joining() -> None:
    def story() -> None:
        a, b = torch.ones(2, 3), torch.arange(6).reshape(2, 3)
        torch.cat([a, b]), torch.cat([a, torch.empty(0), b], 1), torch.cat([b, b.to(torch.uint8)], -1)
        torch.stack([a, b.float()], -1), torch.cat([torch.empty(0), torch.empty(0)])
        torch.block_diag(a, b, torch.tensor(5.0))

    check(story)


def test_moving_repeating_and_padding() -> None:
    def story() -> None:
        x = torch.arange(24.0).reshape(2, 3, 4)
        x.flip(0, 2), x.roll(5), x.roll((1, -2), (0, 2)), torch.rot90(x, 3, (1, 2)), x.roll(0, 1)
        x.repeat(2, 1, 1, 3), x.tile(2), torch.tensor(3).repeat(4), torch.zeros(0, 2).roll(1)
        F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=2.5), F.pad(x.long(), (1, 1), value=-7), F.pad(x > 3, (1, 1))
        torch.diag_embed(x, 1, 0, 2), torch.diag_embed(x, -2)
        torch.trace(x[0])

    check(story)
