"""Reductions and scans: NaN, ties, empty and 0-dim tensors, accumulation, dtypes."""

from __future__ import annotations

import math

import pytest
import torch

from .harness import check

NAN, INF = math.nan, math.inf
WITH_NAN = torch.tensor([[1.0, NAN, 3.0, 3.0], [-2.0, -2.0, 5.0, -INF], [NAN, NAN, 0.0, -0.0]])


def test_sums_keep_or_choose_their_dtype() -> None:
    def story() -> None:
        for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32):
            x = torch.ones(3, 4, dtype=dtype)
            x.sum()
            x.sum(1, keepdim=True)
            x.sum((0, -1))
            x.sum(0, dtype=torch.float64)
            x.prod()
            x.cumsum(-1)
            x.cumprod(0, dtype=torch.float64)
        torch.tensor([1.7, 1.7]).sum(dtype=torch.int64)
        WITH_NAN.nansum(1)
        WITH_NAN.sum(1)

    check(story)


def test_extrema_prefer_nan_and_the_first_of_equals() -> None:
    def story() -> None:
        for x in (WITH_NAN, torch.tensor([[3, 3, 1], [0, 2, 2]]), torch.tensor([[True, False, True]])):
            x.max()
            x.min()
            x.amax(1)
            x.amin((0, 1), keepdim=True)
            x.max(1)
            x.min(0, keepdim=True)
            if x.dtype != torch.bool:
                x.argmax()
                x.argmin(1)
                x.argmax(0, keepdim=True)
            torch.aminmax(x, dim=1)

    check(story)


def test_a_number_is_reduced_too() -> None:
    def story() -> None:
        for x in (torch.tensor(2.5), torch.tensor(3)):
            x.sum(0)
            x.max(0)
            x.argmax(0, keepdim=True)
            x.amax()
            x.cumsum(0)
            x.cummax(0)
            x.median(0)
            x.any(0)
            torch.count_nonzero(x)
        torch.tensor(2.5).mean(0)
        torch.tensor(2.5).logsumexp(0)
        torch.tensor(2.5).norm()

    check(story)


def test_nothing_is_reduced_to_the_neutral_element() -> None:
    def story() -> None:
        x = torch.ones(0, 3)
        x.sum(), x.sum(0), x.prod(0), x.mean(0), x.any(0), x.all(0), x.amax(1), x.logsumexp(0)
        x.cumsum(0), x.norm(dim=0)

    check(story)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("correction", [0, 1, 2, 2.5, 6, 7])
def test_variance_with_any_correction(correction: float) -> None:
    x = torch.randn(6, 3)

    def story() -> None:
        torch.var(x, 0, correction=correction)
        torch.std(x, (0, 1), correction=correction, keepdim=True)
        torch.var_mean(x, 0, correction=correction)
        torch.std_mean(x, correction=correction)
        torch.var((x + 1j * x.flip(0)), 0, correction=correction)

    check(story)


def test_variance_far_from_zero_keeps_its_digits() -> None:
    check(lambda: torch.var(torch.tensor([10000.0, 10001.0, 10002.0, 9999.0])))


def test_norms_of_every_order() -> None:
    x = torch.randn(3, 4)

    def story() -> None:
        for p in (0, 1, 2, 3, 0.5, -1, INF, -INF):
            torch.linalg.vector_norm(x, p)
            torch.linalg.vector_norm(x, p, dim=1, keepdim=True)
            torch.norm(x, p, dim=0)
        torch.linalg.vector_norm(x.to(torch.bfloat16), 2, dtype=torch.float32)
        torch.linalg.vector_norm(torch.complex(x, x), 2)
        torch.renorm(x, 2, 0, 1.5)

    check(story)


def test_scans_of_nan_and_ties() -> None:
    def story() -> None:
        for x in (WITH_NAN, torch.tensor([[1, 3, 3, 2, 3], [5, 5, 0, 0, 7]])):
            x.cummax(1)
            x.cummin(1)
            x.cummax(0)
        torch.logcumsumexp(torch.tensor([-INF, -INF, 0.5, 100.0, INF]), 0)
        torch.logsumexp(torch.tensor([[-INF, -INF], [1.0, INF], [500.0, 501.0]]), 1)

    check(story)


def test_medians() -> None:
    def story() -> None:
        WITH_NAN.median()
        WITH_NAN.nanmedian()
        torch.tensor([4.0, 1.0, 3.0, 2.0]).median()
        torch.tensor([[4, 1, 3, 2], [8, 5, 7, 6]]).median(1, keepdim=True)
        torch.tensor([[4.0, NAN, 3.0, 2.0]]).nanmedian(1)
        torch.tensor([[4.0, NAN, 3.0, 2.0]]).median(1)

    check(story)


def test_any_and_all_of_every_dtype() -> None:
    def story() -> None:
        for x in (
            torch.tensor([[0, 2], [0, 0]]),
            torch.tensor([[NAN, 0.0]]),
            torch.tensor([[0, 3]], dtype=torch.uint8),
        ):
            x.any(), x.all(), x.any(1), x.all(0, keepdim=True)
            torch.count_nonzero(x, 1)

    check(story)
