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


def _cholesky_ex(x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = _cholesky(x, upper)
    return factor, _info(factor)


def _cholesky(x: Any, upper: bool = False) -> Any:
    if 0 in x.shape:  # of no element: in any dtype
        return x
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


@lower("aten.triangular_solve.default")
def triangular_solve(
    ctx: Ctx, self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    solution = triangular(A, self, upper=upper, unit=unitriangular, transpose=transpose)
    return solution, jnp.broadcast_to(A, ctx.out[1].shape)


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    # A = L L^H, or U^H U
    inner = triangular(factor, b, upper=upper, adjoint=upper)
    return triangular(factor, inner, upper=upper, adjoint=not upper)


def eye_like(x: Any) -> Any:
    """An identity matrix for each of the square matrices ``x``."""
    return jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape)


def _qr(x: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return jnp.zeros((0,), x.dtype), jnp.linalg.qr(x, mode="r")
    return tuple(jnp.linalg.qr(x, mode=mode))


def _eigh(x: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    x = x if UPLO.upper() == "L" else adjoint(x)
    vectors, values = lax.linalg.eigh(x, lower=True, symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), x.dtype)


def _svd(x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    if not compute_uv:
        empty = jnp.zeros((0,), x.dtype)
        return empty, jnp.linalg.svd(x, compute_uv=False), empty
    return tuple(jnp.linalg.svd(x, full_matrices=full_matrices))


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
        "cholesky": _cholesky,
        "linalg_cholesky_ex": _cholesky_ex,
        "cholesky_solve _cholesky_solve_helper": _cholesky_solve,
        "cholesky_inverse": lambda x, upper=False: _cholesky_solve(eye_like(x), x, upper),
        "linalg_solve_triangular": lambda a, b, *, upper, left=True, unitriangular=False: triangular(
            a, b, upper=upper, left=left, unit=unitriangular
        ),
        "linalg_qr": _qr,
        "_linalg_eigh": _eigh,
        "_linalg_svd": _svd,
        "linalg_householder_product": lambda x, tau: lax.linalg.householder_product(x, tau),
        "linalg_matrix_exp": lambda x: jsl.expm(wide(x)),
        "trace": lambda x: jnp.trace(x),
        "linalg_cross": lambda x, other, *, dim=-1: jnp.cross(x, other, axis=dim),
    }
)
