"""Decompositions and solvers of (batches of) matrices.

``linalg_eig`` and ``linalg_eigvals`` have no lowering: jax computes them on the CPU only, and so does the fallback.
LU factorisations and their solvers are in :mod:`.lu`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax

from .registry import Ctx, direct_table, is_complex, lower, wide


def adjoint(x: Any) -> Any:
    x = jnp.swapaxes(x, -1, -2)
    return jnp.conj(x) if is_complex(x) else x


def _info(factor: Any) -> Any:
    """0, or 1 where the factor could not be computed: LAPACK would say at which column, jax leaves NaN all over."""
    return jnp.any(jnp.isnan(factor), (-2, -1)).astype(jnp.int32)


@lower("aten.linalg_cholesky_ex.default")
def cholesky_ex(ctx: Ctx, self: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = _cholesky(self, upper)
    return factor, _info(factor)


def _cholesky(x: Any, upper: bool) -> Any:
    # Only one triangle is read, as in LAPACK.
    factor = jnp.linalg.cholesky(adjoint(x) if upper else x, symmetrize_input=False)
    return adjoint(factor) if upper else factor


def triangular(
    a: Any,
    b: Any,
    *,
    upper: bool,
    left: bool = True,
    unit: bool = False,
    transpose: bool = False,
    adjoint: bool = False,
) -> Any:
    """``a^-1 b`` with ``a`` triangular, over broadcast batches; ``b a^-1`` unless ``left``.

    ``transpose`` solves with ``a^T`` in place of ``a``, ``adjoint`` with ``a^H``.
    """
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=not upper,
        unit_diagonal=unit,
        transpose_a=adjoint or transpose,
        conjugate_a=adjoint and is_complex(a),
    )


@lower("aten.linalg_solve_triangular.default")
def solve_triangular(
    ctx: Ctx, self: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    return triangular(self, B, upper=upper, left=left, unit=unitriangular)


@lower("aten.triangular_solve.default")
def triangular_solve(
    ctx: Ctx, self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    solution = triangular(A, self, upper=upper, unit=unitriangular, transpose=transpose)
    return solution, jnp.broadcast_to(A, ctx.out[1].shape)


@lower("aten.cholesky_solve.default", "aten._cholesky_solve_helper.default")
def cholesky_solve(ctx: Ctx, self: Any, input2: Any, upper: bool = False) -> Any:
    # A = L L^H, or U^H U
    inner = triangular(input2, self, upper=upper, adjoint=upper)
    return triangular(input2, inner, upper=upper, adjoint=not upper)


@lower("aten.cholesky_inverse.default")
def cholesky_inverse(ctx: Ctx, self: Any, upper: bool = False) -> Any:
    eye = jnp.broadcast_to(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape)
    return cholesky_solve(ctx, eye, self, upper)


@lower("aten.linalg_qr.default")
def qr(ctx: Ctx, A: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.linalg.qr(A, mode="r")
    q, r = jnp.linalg.qr(A, mode=mode)
    return q, r


@lower("aten._linalg_eigh.default")
def eigh(ctx: Ctx, A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    A = A if UPLO.upper() == "L" else adjoint(A)
    if not compute_v:
        values = lax.linalg.eigh(A, lower=True, symmetrize_input=False)[1]
        return values, jnp.zeros((0,), A.dtype)
    vectors, values = lax.linalg.eigh(A, lower=True, symmetrize_input=False)
    return values, vectors


@lower("aten._linalg_svd.default")
def svd(ctx: Ctx, A: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if not compute_uv:
        empty = jnp.zeros((0,), A.dtype)
        return empty, jnp.linalg.svd(A, compute_uv=False), empty
    u, s, vh = jnp.linalg.svd(A, full_matrices=full_matrices)
    return u, s, vh


@lower("aten.geqrf.default")
def geqrf(ctx: Ctx, self: Any) -> Any:
    if 0 in self.shape:
        return tuple(jnp.zeros(out.shape, out.jax) for out in ctx.out)
    reflectors, tau = jnp.linalg.qr(self, mode="raw")
    return jnp.swapaxes(reflectors, -1, -2), tau


@lower("aten.ormqr.default")
def ormqr(ctx: Ctx, self: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
    if 0 in input3.shape or 0 in self.shape:
        return jnp.broadcast_to(input3, ctx.out[0].shape)
    return lax.linalg.ormqr(self, input2, input3, left=left, transpose=transpose)


direct_table(
    {
        "cholesky": lambda x, upper=False: _cholesky(x, upper),
        "linalg_householder_product": lambda x, tau: lax.linalg.householder_product(x, tau),
        "linalg_matrix_exp": lambda x: jsl.expm(wide(x)),
        "trace": lambda x: jnp.trace(x),
        "linalg_cross": lambda x, other, *, dim=-1: jnp.cross(x, other, axis=dim),
    }
)
