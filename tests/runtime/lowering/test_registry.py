"""Type promotion as PyTorch does it, whatever meets whatever."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import pytest
import torch

from xlaprof.runtime.lowering.registry import JAX_DTYPE, Ctx, lower, result_dtype

from .harness import check

DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.float32)
DTYPES += (torch.float64, torch.complex64, torch.complex128)


def test_any_two_values_promote_as_in_pytorch() -> None:
    kinds: list[object] = [True, 3, 2.5]
    for dtype in DTYPES:
        kinds += [torch.ones((), dtype=dtype), torch.ones(2, dtype=dtype)]
    compared = 0
    with jax.enable_x64(True):
        as_jax = [k if not isinstance(k, torch.Tensor) else jnp.ones(k.shape, JAX_DTYPE[k.dtype]) for k in kinds]
        packed = [jnp.asarray(3), jnp.asarray(2.5)]
        ctx = Ctx((), weak=frozenset(map(id, packed)))
        for (t, j), (u, k) in itertools.product(zip(kinds, as_jax, strict=True), repeat=2):
            expected = torch.result_type(t, u)
            if expected == torch.complex32:  # no such dtype in jax
                continue
            for v in (k, *((packed[0],) if type(k) is int else (packed[1],) if type(k) is float else ())):
                assert result_dtype(ctx, j, v) == JAX_DTYPE[expected], (t, u)
                compared += 1
    assert compared > 500


def test_a_second_lowering_of_one_operator_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor has two lowerings"):
        lower("aten.add.Tensor")(lambda ctx: None)


def test_the_harness_tells_a_wrong_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    from xlaprof.runtime.lowering.table import LOWERINGS

    monkeypatch.setitem(LOWERINGS, "aten.add.Tensor", lambda ctx, a, b, alpha=1: a - b)
    with pytest.raises(AssertionError, match=r"aten\.add\.Tensor"):
        check(lambda: torch.ones(2) + torch.ones(2))


def test_addition_with_numbers_and_alpha() -> None:
    def story() -> None:
        x = torch.randn(3)
        _ = x + 2.5
        x.add_(torch.ones(3, dtype=torch.float64), alpha=0.25)
        _ = torch.add(torch.ones(2, dtype=torch.uint8), 300)
        _ = torch.add(torch.full((3,), 0.1, dtype=torch.bfloat16), 0.3333, alpha=3)

    assert check(story).checked["aten.add.Tensor"] == 8
