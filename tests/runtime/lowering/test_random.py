"""Random numbers: the right distribution, shape and dtype, and the same numbers for the same key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xlaprof.runtime.lowering.registry import JAX_DTYPE, Aval, Ctx
from xlaprof.runtime.lowering.table import LOWERINGS, RANDOM

from .harness import check

N = 20_000


def draw(
    name: str, *args: Any, shape: tuple[int, ...] = (N,), dtype: torch.dtype = torch.float32, seed: int = 0
) -> Any:
    """What the lowering ``name`` gives for a key; a tensor argument stands as ``"self"``."""
    with jax.enable_x64(True):
        given = [jnp.zeros(shape, JAX_DTYPE[dtype]) if isinstance(a, str) else a for a in args]
        ctx = Ctx((Aval(shape, dtype),), jax.random.key(seed))
        out = LOWERINGS[name](ctx, *given)
        out = out if isinstance(out, tuple) else (out,)
        return np.asarray(jnp.asarray(out[0]).astype(JAX_DTYPE[dtype])).astype(np.float64)


def test_all_are_registered_as_random() -> None:
    assert {"aten.rand.default", "aten.normal_.default", "aten.bernoulli.p", "aten.native_dropout.default"} <= RANDOM
    assert "aten.native_dropout_backward.default" not in RANDOM


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "args", "mean", "variance"),
    [
        ("aten.rand.default", ((N,),), 1 / 2, 1 / 12),
        ("aten.randn.default", ((N,),), 0, 1),
        ("aten.uniform.default", ("self", -2.0, 4.0), 1, 3),
        ("aten.uniform_.default", ("self",), 1 / 2, 1 / 12),
        ("aten.normal_functional.default", ("self", 3.0, 0.5), 3, 1 / 4),
        ("aten.normal_.default", ("self", 3.0, 0.5), 3, 1 / 4),
        ("aten.normal.float_float", (3.0, 0.5, (N,)), 3, 1 / 4),
        ("aten.log_normal.default", ("self", 0.0, 0.25), np.exp(1 / 32), (np.exp(1 / 16) - 1) * np.exp(1 / 16)),
        ("aten.exponential_.default", ("self", 2.0), 1 / 2, 1 / 4),
        ("aten.geometric.default", ("self", 0.25), 4, 12),
        ("aten.bernoulli.p", ("self", 0.3), 0.3, 0.21),
        ("aten.bernoulli_.float", ("self", 0.9), 0.9, 0.09),
        ("aten.randint.low", (-3, 7, (N,)), 1.5, 99 / 12),
        ("aten.random.to", ("self", 10), 4.5, 99 / 12),
        ("aten.poisson.default", (np.full((N,), 3.0, np.float32),), 3, 3),
        ("aten._standard_gamma.default", (np.full((N,), 2.5, np.float32),), 2.5, 2.5),
        ("aten.native_dropout.default", (np.ones((N,), np.float32), 0.25, True), 1, 1 / 3),
    ],
)
def test_moments(name: str, args: tuple[Any, ...], mean: float, variance: float) -> None:
    values = draw(name, *args)
    spread = np.sqrt(variance / N)
    assert abs(values.mean() - mean) < 5 * spread
    assert abs(values.var() - variance) < 0.1 * variance
    np.testing.assert_array_equal(values, draw(name, *args))
    assert (values != draw(name, *args, seed=1)).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_uniform_numbers_stay_below_one(dtype: torch.dtype) -> None:
    values = draw("aten.rand.default", (N,), dtype=dtype)
    assert values.min() >= 0
    assert values.max() < 1
    values = draw("aten.uniform.default", "self", 1.0, 2.0, dtype=dtype)
    assert values.min() >= 1
    assert values.max() < 2


def test_exponential_numbers_are_never_zero() -> None:
    assert draw("aten.exponential.default", "self", dtype=torch.float16).min() > 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool, torch.bfloat16])
def test_random_covers_the_dtype(dtype: torch.dtype) -> None:
    top = float(256 if dtype == torch.bfloat16 else 1 if dtype == torch.bool else torch.iinfo(dtype).max)
    values = draw("aten.random.default", "self", dtype=dtype)
    assert values.min() >= 0
    assert values.max() <= top
    assert values.max() > 0.9 * top
    assert abs(values.mean() / top - 0.5) < 0.02


def test_a_permutation_has_each_number_once() -> None:
    values = draw("aten.randperm.default", 1000, shape=(1000,), dtype=torch.int64)
    assert sorted(values) == list(range(1000))
    assert list(values) != list(range(1000))


def test_dropout_scales_what_it_keeps_and_drops_all_at_one() -> None:
    x = np.full((N,), 3.0, np.float32)
    assert set(draw("aten.native_dropout.default", x, 0.25, True)) == {0.0, 4.0}
    assert set(draw("aten.native_dropout.default", x, 1.0, True)) == {0.0}
    assert set(draw("aten.native_dropout.default", x, 0.5, False)) == {3.0}


def test_multinomial_follows_its_weights() -> None:
    weights = np.array([0.0, 1.0, 3.0], np.float32)
    values = draw("aten.multinomial.default", weights, N, True, dtype=torch.int64)
    assert set(values) == {1.0, 2.0}
    assert abs((values == 2).mean() - 0.75) < 0.02
    rows = np.tile(np.array([1.0, 2.0, 3.0, 0.0], np.float32), (500, 1))
    picked = draw("aten.multinomial.default", rows, 3, False, shape=(500, 3), dtype=torch.int64)
    assert all(sorted(row) == [0.0, 1.0, 2.0] for row in picked)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "factories": lambda: (torch.rand(3), torch.randn(2, 3), torch.randint(5, (4,)), torch.randperm(5)),
    "like": lambda: (
        torch.rand_like(torch.ones(3)),
        torch.randn_like(torch.ones(3)),
        torch.randint_like(torch.ones(3), 9),
    ),
    "in place": lambda: [
        getattr(torch.zeros(3), fill)()
        for fill in ("normal_", "uniform_", "bernoulli_", "random_", "exponential_", "cauchy_", "log_normal_")
    ],
    "bounds": lambda: (torch.zeros(3).random_(2, 9), torch.zeros(3).geometric_(0.3), torch.zeros(3).uniform_(2, 3)),
    "bernoulli": lambda: (torch.bernoulli(torch.full((3,), 0.5)), torch.zeros(3).bernoulli_(torch.full((3,), 0.5))),
    "normal": lambda: (torch.normal(torch.zeros(3), torch.ones(3)), torch.normal(0.5, 2.0, (3,))),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(4, requires_grad=True), 0.3).sum().backward(),
    "complex": lambda: (torch.randn(3, dtype=torch.complex64), torch.rand(3, dtype=torch.complex64)),
    "sampling": lambda: (torch.multinomial(torch.ones(2, 3), 2), torch.poisson(torch.ones(3))),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_and_dtypes_of_what_pytorch_calls(name: str) -> None:
    checker = check(PROGRAMS[name])
    assert RANDOM & set(checker.checked)


def test_gamma_draws_move_with_their_shape_parameter() -> None:
    shapes = torch.tensor([0.05, 0.5, 1.0, 3.0, 20.0, 200.0], dtype=torch.float64)
    for quotient in (0.5, 1.0, 1.5):
        draws = shapes * quotient
        with jax.enable_x64(True):
            ctx = Ctx((Aval((6,), torch.float64),))
            ours = LOWERINGS["aten._standard_gamma_grad.default"](ctx, jnp.asarray(shapes), jnp.asarray(draws))
        # PyTorch approximates it to four digits.
        np.testing.assert_allclose(np.asarray(ours), torch._standard_gamma_grad(shapes, draws), rtol=2e-4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("aten.rand.default", jax.random.uniform), ("aten.randn.default", jax.random.normal)],
)
def test_numbers_are_drawn_in_one_dimension_and_are_the_same(name: str, expected: Callable[..., Any]) -> None:
    """XLA compiles the counters of many dimensions for six times as long."""
    shape = (3, 4, 5)
    ctx = Ctx((Aval(shape, torch.float32),))
    steps = str(jax.make_jaxpr(lambda key: LOWERINGS[name](ctx._replace(key=key)))(jax.random.key(0)))
    assert "shape=(60,)" in steps
    assert "shape=(3, 4, 5)" not in steps
    np.testing.assert_array_equal(draw(name, shape=shape), expected(jax.random.key(0), shape, jnp.float32))
