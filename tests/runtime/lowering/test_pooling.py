"""Pooling: windows that hang over the edge, equal values, NaN, and where each gradient goes."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from .harness import check

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGES = {2: F.avg_pool2d, 3: F.avg_pool3d}


def _both_ways(out: torch.Tensor) -> None:
    out.backward(torch.rand_like(out))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_pool(dims: int, ceil_mode: bool) -> None:
    def story() -> None:
        for kernel, stride, padding, dilation in ((2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2)):
            x = torch.randn(2, 3, *(10, 9, 8)[:dims], requires_grad=True)
            _both_ways(POOLS[dims](x, kernel, stride, padding, dilation, ceil_mode=ceil_mode))

    check(story)


@pytest.mark.slow
def test_of_equal_values_the_first_is_the_maximum_and_nan_is_above_all() -> None:
    def story() -> None:
        x = torch.randint(0, 3, (2, 2, 9, 9)).float().requires_grad_()
        out, _ = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        _both_ways(out)
        F.max_pool2d(torch.full((1, 1, 6, 6), -torch.inf), 3, 2, 1, return_indices=True)
        with_nan = torch.randn(1, 1, 8, 8)
        with_nan[0, 0, 2, 2] = with_nan[0, 0, 3, 1] = with_nan[0, 0, 3, 3] = torch.nan
        for kernel in (2, 3, 4):
            F.max_pool2d(with_nan, kernel, 1, return_indices=True)
        F.max_pool2d(torch.randint(-9, -1, (1, 1, 6, 6)), 3, 2, 1, return_indices=True)
        F.adaptive_max_pool2d(torch.randint(0, 2, (1, 2, 7, 5)).float(), (3, 2), return_indices=True)

    check(story)


def test_windows_too_wide_to_unroll() -> None:
    def story() -> None:
        x = torch.randint(0, 5, (1, 2, 40, 25)).float().requires_grad_()
        _both_ways(F.max_pool2d(x, (35, 20), 3, 4, ceil_mode=True))
        _both_ways(F.adaptive_max_pool2d(x, (2, 1)))
        _both_ways(F.adaptive_avg_pool2d(x, (2, 1)))

    check(story)


@pytest.mark.parametrize("dims", [2, 3])
def test_average_pool_divides_by_what_it_is_told_to(dims: int) -> None:
    def story() -> None:
        for ceil_mode, count_include_pad, divisor in itertools.product((False, True), (False, True), (None, 3)):
            x = torch.randn(2, 2, *(9, 8, 7)[:dims], requires_grad=True)
            _both_ways(AVERAGES[dims](x, 3, 2, 1, ceil_mode, count_include_pad, divisor))
        AVERAGES[dims](torch.randn(1, 2, *(7, 7, 7)[:dims]), 2, ceil_mode=True)
        F.avg_pool2d(torch.randint(-50, 50, (1, 1, 7, 7)), 3, 2, 1)

    check(story)


@pytest.mark.parametrize("dims", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_adaptive_pools_up_and_down(dims: int) -> None:
    average = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[dims - 1]
    maximum = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[dims - 1]

    def story() -> None:
        for out in ((3, 4, 2), (7, 12, 9)):
            x = torch.randn(2, 3, *(6, 8, 9)[:dims], requires_grad=True)
            _both_ways(average(x, out[:dims]))
            _both_ways(maximum(x, out[:dims]))

    check(story)


def test_unpooling_puts_the_maxima_back() -> None:
    def story() -> None:
        x = torch.randn(2, 3, 8, 8, requires_grad=True)
        values, indices = F.max_pool2d(x, 2, return_indices=True)
        _both_ways(F.max_unpool2d(values, indices, 2))

    assert check(story).checked["aten.max_unpool2d.default"] == 1


def test_half_precision_averages_do_not_drift() -> None:
    def story() -> None:
        x = (torch.rand(1, 1, 32, 32) + 1000).half()
        F.adaptive_avg_pool2d(x, 2)
        F.avg_pool2d(x, 16)

    check(story)


def test_fractional_pools_of_no_images() -> None:
    def story() -> None:
        x = torch.randn(0, 1, 4, 5, 4, requires_grad=True)
        _both_ways(F.fractional_max_pool3d(x, (2, 2, 1), output_size=(2, 3, 2)))
        F.fractional_max_pool2d(torch.randn(0, 2, 4, 4), 2, output_size=2)

    assert check(story).checked["aten.fractional_max_pool3d.default"] == 1
