"""Products and decompositions: full precision, half precision, weights that hide NaN, what has no sign of its own."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from xlaprof.runtime.lowering.registry import Aval, Ctx
from xlaprof.runtime.lowering.table import LOWERINGS

from .harness import check


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64])
def test_products_of_every_kind(dtype: torch.dtype) -> None:
    a, b, v = (torch.randn(shape).mul(3).to(dtype) for shape in ((3, 4), (4, 5), (4,)))
    batch = torch.randn(2, 3, 4).mul(3).to(dtype)

    def story() -> None:
        _ = a @ b, a @ v, v @ v, batch @ batch.mT, batch @ b
        torch.addmm(torch.ones(5).to(dtype), a, b)
        torch.addmm(torch.ones(3, 5).to(dtype), a, b, beta=2, alpha=3)
        torch.baddbmm(torch.ones(2, 3, 3).to(dtype), batch, batch.mT)
        torch.addmv(torch.ones(3).to(dtype), a, v, alpha=2)
        torch.addr(a, torch.ones(3).to(dtype), v)
        torch.vdot(v, v)
        torch.einsum("bij,jk->bik", batch, b)
        torch.outer(v, v)

    checker = check(story)
    assert checker.checked["aten.mm.default"] >= 1
    assert checker.checked["aten.bmm.default"] >= 1


def test_float32_is_multiplied_in_full() -> None:
    x = 1 + torch.rand(64, 512) * 1e-3  # digits that bfloat16 or tf32 passes would lose
    check(lambda: (x @ x.T, torch.nn.functional.linear(x, x, torch.ones(64))))


def test_a_zero_weight_hides_nan() -> None:
    x = torch.randn(3, 3)

    def story() -> None:
        hidden = torch.full((3, 3), math.nan)
        torch.addmm(hidden, x, x, beta=0)
        torch.addmm(hidden, x, x, beta=0.0, alpha=0.5)
        torch.addmm(x, x, x, beta=0.5, alpha=-1)

    check(story)


def test_nothing_multiplied_gives_zeros() -> None:
    check(lambda: (torch.ones(3, 0) @ torch.ones(0, 2), torch.ones(0) @ torch.ones(0)))


def test_a_model_trains() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)

    def story() -> None:
        for _ in range(2):
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    checker = check(story)
    assert {"aten.addmm.default", "aten.gelu_backward.default", "aten.addcdiv.default"} <= set(checker.checked)


def test_solvers() -> None:
    a = torch.randn(2, 4, 4) + 4 * torch.eye(4)
    spd = a @ a.mT + torch.eye(4)
    b, v = torch.randn(2, 4, 3), torch.randn(2, 4)

    def story() -> None:
        for upper in (False, True):
            factor = torch.linalg.cholesky(spd, upper=upper)
            torch.cholesky_solve(b, factor, upper=upper)
            torch.cholesky_inverse(factor, upper=upper)
            torch.linalg.solve_triangular(factor, b, upper=upper)
            torch.linalg.solve_triangular(factor, b.mT, upper=upper, left=False)
            torch.linalg.solve_triangular(factor, b, upper=upper, unitriangular=True)
        torch.linalg.solve(a, b)
        torch.linalg.solve(a, v)
        torch.linalg.solve(a, b.mT, left=False)
        torch.linalg.inv(a)
        torch.linalg.lu_factor(a)
        torch.linalg.matrix_exp(a / 4)
        torch.linalg.cross(torch.randn(2, 3), torch.randn(2, 3))

    check(story)


def test_failures_are_told_in_info() -> None:
    broken = {
        "aten.linalg_cholesky_ex.default": np.array([[1.0, 2.0], [2.0, 1.0]]),
        "aten.linalg_inv_ex.default": np.array([[1.0, 2.0], [2.0, 4.0]]),
        "aten.linalg_lu_factor_ex.default": np.array([[0.0, 0.0], [0.0, 4.0]]),
    }
    with jax.enable_x64(True):
        for name, matrix in broken.items():
            for a in (matrix, np.eye(2)):
                expected = getattr(torch.ops.aten, name.split(".")[1])(torch.from_numpy(a))[-1]
                info = LOWERINGS[name](Ctx(()), jnp.asarray(a))[-1]
                assert bool(info) == bool(expected), name


def test_eigenvectors_and_singular_vectors_rebuild_their_matrix() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    symmetric = a + a.T
    with jax.enable_x64(True):
        ctx = Ctx((Aval((4,), torch.float64), Aval((4, 4), torch.float64)))
        for uplo in "LU":
            read = np.tril(symmetric) if uplo == "L" else np.triu(symmetric)
            values, vectors = LOWERINGS["aten._linalg_eigh.default"](ctx, jnp.asarray(read), uplo)
            np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, symmetric, atol=1e-12)
        for full in (False, True):
            u, s, vh = LOWERINGS["aten._linalg_svd.default"](ctx, jnp.asarray(a[:, :3]), full)
            np.testing.assert_allclose(u[:, :3] * s @ vh[:3], a[:, :3], atol=1e-12)


def test_eig_is_left_to_the_cpu() -> None:
    assert "aten.linalg_eig.default" not in LOWERINGS
    assert "aten.linalg_eigvals.default" not in LOWERINGS
