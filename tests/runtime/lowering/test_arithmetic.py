"""Arithmetic where it is easy to get wrong: signs, NaN, overflow, small integers, half precision, rounding."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from .harness import check

NAN, INF = math.nan, math.inf
FLOATS = torch.tensor([-INF, -7.5, -1.0, -0.5, -0.0, 0.0, 0.3, 1.0, 7.0, INF, NAN])
INTS = torch.tensor([-9, -7, -1, 1, 2, 7, 100], dtype=torch.int64)


def pairs(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor(list(itertools.product(values.tolist(), repeat=2)), dtype=values.dtype)
    return both[:, 0], both[:, 1]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_division_and_remainder_of_floats_round_and_sign_as_in_pytorch(dtype: torch.dtype) -> None:
    a, b = (x.to(dtype) for x in pairs(FLOATS))

    def story() -> None:
        torch.div(a, b)
        torch.div(a, b, rounding_mode="floor")
        torch.div(a, b, rounding_mode="trunc")
        torch.floor_divide(a, b)
        torch.remainder(a, b)
        torch.fmod(a, b)
        torch.remainder(a, 2.5)
        torch.fmod(a, -2.5)

    check(story)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_division_and_remainder_of_integers(dtype: torch.dtype) -> None:
    a, b = pairs(INTS.abs().to(dtype) if dtype == torch.uint8 else INTS.to(dtype))

    def story() -> None:
        torch.div(a, b)
        torch.div(a, b, rounding_mode="floor")
        torch.div(a, b, rounding_mode="trunc")
        torch.floor_divide(a, b)
        torch.remainder(a, b)
        torch.fmod(a, b)
        torch.remainder(a, 3)
        torch.div(a, 2.5, rounding_mode="trunc")

    check(story)


def test_integers_wrap_around() -> None:
    def story() -> None:
        for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
            top = torch.full((2,), torch.iinfo(dtype).max, dtype=dtype)
            _ = top + 1
            _ = top * 3
            _ = top + top
        _ = torch.tensor([3, 200], dtype=torch.uint8) - torch.tensor([5, 100], dtype=torch.uint8)
        _ = -torch.tensor([3], dtype=torch.uint8)
        _ = torch.tensor([-128], dtype=torch.int8).abs()

    check(story)


def test_int64_beyond_double_precision_stays_exact() -> None:
    def story() -> None:
        x = torch.tensor([2**53 + 1, -(2**62) + 3])
        _ = x + 5
        _ = x * 2**1
        _ = x + (2**53 + 1)
        x.sum()
        x.cumsum(0)

    check(story)


def test_booleans_add_and_multiply_as_logic() -> None:
    def story() -> None:
        a, b = torch.tensor([True, True, False]), torch.tensor([True, False, False])
        _ = a + b
        _ = a * b
        _ = a + 2
        _ = a * 2.5
        _ = a / b
        a.sum()
        a.prod()
        torch.maximum(a, b)
        _ = a & b, a | b, a ^ b, ~a

    check(story)


def test_numbers_do_not_widen_tensors() -> None:
    def story() -> None:
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8):
            x = torch.arange(1, 5).to(dtype)
            _ = x + 2.5
            _ = x * 3
            _ = x / 7
            _ = 10 - x
            _ = x**2
            _ = x > 2.5
            _ = x.clamp(2, 3)
            torch.where(x > 2, x, 0.25)
            _ = x * torch.tensor(3.3, dtype=torch.float64)  # 0-dim: as a number
        _ = torch.arange(3) * torch.tensor(2.5)
        _ = torch.arange(3) * (1 + 2j)

    check(story)


def test_half_precision_is_computed_in_single() -> None:
    def story() -> None:
        x = torch.tensor([0.1, 1.7, 300.0], dtype=torch.bfloat16)
        torch.add(x, x, alpha=0.3333)
        torch.addcmul(x, x, x, value=0.123)
        torch.addcdiv(x, x, x + 1, value=0.123)
        torch.lerp(x, x * 2, 0.7)
        x.float().to(torch.bfloat16).sum()
        torch.nn.functional.gelu(x)
        torch.full((4096,), 0.1, dtype=torch.bfloat16).sum()
        torch.full((4096,), 0.1, dtype=torch.float16).mean()

    check(story)


def test_extrema_and_bounds_with_nan() -> None:
    a, b = pairs(FLOATS)

    def story() -> None:
        torch.maximum(a, b)
        torch.minimum(a, b)
        torch.fmax(a, b)
        torch.fmin(a, b)
        a.clamp(-0.75, 0.75)
        a.clamp(min=0.5)
        a.clamp(max=NAN)
        a.clamp(3, -3)  # the upper bound wins
        torch.clamp(a, b, b + 1)
        torch.arange(5).clamp(1.5, 3)

    check(story)


def test_powers() -> None:
    a, b = pairs(FLOATS)

    def story() -> None:
        torch.pow(a, b)
        for exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, -3, INF):
            torch.pow(a, exponent)
        torch.pow(2.5, a)
        torch.pow(1, a)
        ints = torch.tensor([-3, -1, 0, 1, 2, 7])
        for exponent in (0, 1, 2, 3, 5):
            torch.pow(ints, exponent)
        torch.pow(torch.tensor([1, -1, 2, -1]), torch.tensor([-3, -3, 3, -2]))
        torch.pow(ints, 2.0)
        torch.pow(3, ints.abs())
        torch.pow(ints.to(torch.uint8), 5)

    check(story)


def test_signs_and_rounding() -> None:
    halves = torch.tensor([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, NAN, INF])

    def story() -> None:
        for fn in (torch.round, torch.ceil, torch.floor, torch.trunc, torch.sign, torch.signbit, torch.frac, torch.abs):
            fn(halves)
        torch.round(halves * 1.2345, decimals=2)
        torch.round(halves * 123.45, decimals=-1)
        torch.copysign(halves, -halves)
        torch.round(torch.tensor([3, -4]))
        torch.sign(torch.tensor([True, False]))
        torch.nan_to_num(halves / 0)
        torch.nan_to_num(halves, 7.5, 8.5, 9.5)
        torch.heaviside(halves, torch.tensor(0.25))
        torch.nextafter(halves, torch.zeros(9))

    check(story)


def test_comparisons_promote_first() -> None:
    def story() -> None:
        x = torch.tensor([1, 2, 3])
        _ = x > 2.5
        _ = x == torch.tensor([1.0, 2.5, 3.0])
        _ = torch.tensor([0.1], dtype=torch.bfloat16) == 0.1
        _ = FLOATS != FLOATS
        _ = torch.tensor([1 + 2j]) == torch.tensor([1 + 2j])
        _ = torch.tensor([2**53 + 1]) == torch.tensor([2**53])
        torch.isnan(FLOATS), torch.isinf(FLOATS), torch.isfinite(FLOATS), torch.isposinf(FLOATS)
        torch.isinf(x)

    check(story)


def test_bits_and_shifts() -> None:
    def story() -> None:
        for dtype in (torch.int64, torch.int8, torch.uint8):
            x = torch.tensor([1, 100, 5, 127], dtype=dtype)
            by = torch.tensor([0, 1, 7, 3], dtype=dtype)
            _ = x << by, x >> by, x << 2, x >> 1, x & 6, x | by, x ^ by, ~x
        _ = torch.tensor([-8, -1]) >> 1

    check(story)


def test_conversions_wrap_and_truncate_as_in_c() -> None:
    def story() -> None:
        x = torch.tensor([-1.0, -1.9, 1.9, 255.0, 256.5, 300.0])
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int64, torch.bool, torch.bfloat16, torch.float64):
            x.to(dtype)
        torch.tensor([-1, 300]).to(torch.uint8)
        torch.tensor([NAN, 0.0, -0.0]).to(torch.bool)
        torch.tensor([0j, 1j]).to(torch.bool)
        torch.zeros(3, dtype=torch.int64).copy_(torch.tensor([1.7, -1.7, 2.0]))
        torch.zeros(2, 3).copy_(torch.arange(3))
        torch.zeros(3, dtype=torch.int32).fill_(2.9)

    check(story)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_met_by_half_precision_have_its_digits(dtype: torch.dtype) -> None:
    x = torch.linspace(-4, 4, 201).to(dtype)

    def story() -> None:
        for number in (0.1, 3.3):
            torch.fmod(x, number), torch.remainder(x, number), torch.pow(number, x)
            _ = x + number, number - x, x * number, x / number
            torch.div(x, number, rounding_mode="trunc"), torch.div(x, number, rounding_mode="floor")
            torch.add(x, x, alpha=number), torch.xlogy(x, number), torch.addcmul(x, x, x, value=number)

    check(story)
