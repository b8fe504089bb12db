"""Special functions against PyTorch, and where PyTorch has few digits, against scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special as sp
import torch

from xlaprof.runtime.lowering.registry import Aval, Ctx
from xlaprof.runtime.lowering.table import LOWERINGS

from .harness import check

Function = Callable[[np.ndarray], np.ndarray]

OVER_THE_LINE: dict[str, Function] = {
    "bessel_j0": sp.j0,
    "bessel_j1": sp.j1,
    "spherical_bessel_j0": lambda x: sp.spherical_jn(0, x),
    "modified_bessel_i0": sp.i0,
    "modified_bessel_i1": sp.i1,
    "airy_ai": lambda x: sp.airy(x)[0],
    "erfcx": sp.erfcx,
}
OF_POSITIVE_NUMBERS: dict[str, Function] = {
    "bessel_y0": sp.y0,
    "bessel_y1": sp.y1,
    "modified_bessel_k0": sp.k0,
    "modified_bessel_k1": sp.k1,
    "scaled_modified_bessel_k0": sp.k0e,
    "scaled_modified_bessel_k1": sp.k1e,
}
#: what decays or grows is right to a relative error, what oscillates to an absolute one
WAVES = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")


def ours(name: str, x: np.ndarray) -> np.ndarray:
    ctx = Ctx((Aval(x.shape, torch.float64),))
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda a: LOWERINGS[f"aten.special_{name}.default"](ctx, a))(x))


@pytest.mark.parametrize("name", [*OVER_THE_LINE, *OF_POSITIVE_NUMBERS])
def test_right_to_the_last_digits_of_a_double(name: str) -> None:
    x = np.concatenate([np.geomspace(1e-6, 40, 400), np.linspace(0.01, 25, 997)])
    truth = OF_POSITIVE_NUMBERS.get(name)
    if truth is None:
        truth = OVER_THE_LINE[name]
        x = np.concatenate([x, -x[x < 20]])
    expected = truth(x)
    error = np.abs(ours(name, x) - expected)
    scale = np.maximum(np.abs(expected), 1) if name.startswith(WAVES) else np.abs(expected)
    assert (error <= 1e-13 * scale).all(), x[np.argmax(error / scale)]


@pytest.mark.parametrize("name", [*OVER_THE_LINE, *OF_POSITIVE_NUMBERS])
def test_ends_of_the_line_are_pytorchs(name: str) -> None:
    x = torch.tensor([0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.0], dtype=torch.float64)
    expected = getattr(torch.ops.aten, f"special_{name}")(x)
    torch.testing.assert_close(torch.from_numpy(np.array(ours(name, x.numpy()))), expected, equal_nan=True)


POLYNOMIALS = (
    *(f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
)


def test_polynomials_of_every_degree() -> None:
    x = torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.5, 1.0, 2.0, math.nan], dtype=torch.float64)[:, None]
    n = torch.tensor([-1.0, 0, 1, 2, 5, 8, 9, 20, 2.7], dtype=torch.float64)

    def story() -> None:
        for name in POLYNOMIALS:
            polynomial: Any = getattr(torch.special, name)
            polynomial(x.expand(8, 9).contiguous(), n.expand(8, 9).contiguous())

    checker = check(story)
    assert all(checker.checked[f"aten.special_{name}.default"] for name in POLYNOMIALS)
