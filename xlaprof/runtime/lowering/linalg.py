"""Decompositions and solvers of (batches of) matrices.

``linalg_eig`` and ``linalg_eigvals`` have no lowering: jax computes them on the CPU only, and so does the fallback.
``_linalg_det`` and ``_linalg_slogdet`` have none either: whether their second output factors the matrix or its
transpose depends on the argument's strides, which a lowering does not see and the gradient relies on.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax

from xlaprof.runtime.lowering.registry import Ctx, Unsupported, is_complex, lower


def _adjoint(x: Any) -> Any:
    x = jnp.swapaxes(x, -1, -2)
    return jnp.conj(x) if is_complex(x) else x


def _info(factor: Any) -> Any:
    """0, or 1 where the factor could not be computed: LAPACK would say at which column, jax leaves NaN all over."""
    return jnp.any(jnp.isnan(factor), (-2, -1)).astype(jnp.int32)


@lower("aten.linalg_cholesky_ex.default")
def cholesky_ex(ctx: Ctx, self: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = _cholesky(self, upper)
    return factor, _info(factor)


@lower("aten.cholesky.default")
def cholesky(ctx: Ctx, self: Any, upper: bool = False) -> Any:
    return _cholesky(self, upper)


def _cholesky(x: Any, upper: bool) -> Any:
    # Only one triangle is read, as in LAPACK.
    factor = jnp.linalg.cholesky(_adjoint(x) if upper else x, symmetrize_input=False)
    return _adjoint(factor) if upper else factor


def _triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unit: bool = False, adjoint: bool = False) -> Any:
    """``a^-1 b`` (or ``b a^-1``) with ``a`` triangular, over broadcast batches."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=not upper,
        unit_diagonal=unit,
        transpose_a=adjoint,
        conjugate_a=adjoint and is_complex(a),
    )


@lower("aten.linalg_solve_triangular.default")
def solve_triangular(
    ctx: Ctx, self: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    return _triangular(self, B, upper=upper, left=left, unit=unitriangular)


@lower("aten.triangular_solve.default")
def triangular_solve(
    ctx: Ctx, self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    batch = jnp.broadcast_shapes(A.shape[:-2], self.shape[:-2])
    solution = lax.linalg.triangular_solve(
        jnp.broadcast_to(A, (*batch, *A.shape[-2:])),
        jnp.broadcast_to(self, (*batch, *self.shape[-2:])),
        left_side=True,
        lower=not upper,
        transpose_a=transpose,
        unit_diagonal=unitriangular,
    )
    return solution, jnp.broadcast_to(A, ctx.out[1].shape)


@lower("aten.cholesky_solve.default", "aten._cholesky_solve_helper.default")
def cholesky_solve(ctx: Ctx, self: Any, input2: Any, upper: bool = False) -> Any:
    # A = L L^H, or U^H U
    inner = _triangular(input2, self, upper=upper, adjoint=upper)
    return _triangular(input2, inner, upper=upper, adjoint=not upper)


@lower("aten.cholesky_inverse.default")
def cholesky_inverse(ctx: Ctx, self: Any, upper: bool = False) -> Any:
    eye = jnp.broadcast_to(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape)
    return cholesky_solve(ctx, eye, self, upper)


@lower("aten.linalg_inv_ex.default")
def inv_ex(ctx: Ctx, A: Any, *, check_errors: bool = False) -> Any:
    lu, _, permutation = lax.linalg.lu(A)
    eye = jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)
    return _lu_solve(lu, permutation, eye), _singular(lu)


def _singular(lu: Any) -> Any:
    """``info`` of an LU factorisation: the number of the first zero on its diagonal, or 0."""
    if not lu.shape[-1]:
        return jnp.zeros(lu.shape[:-2], jnp.int32)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    return jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32)


def _lu_solve(lu: Any, permutation: Any, b: Any) -> Any:
    """Solve ``A x = b`` given ``A[permutation] = L U``."""
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    permutation = jnp.broadcast_to(permutation, (*batch, permutation.shape[-1]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    b = jnp.take_along_axis(b, permutation[..., None], -2)
    return _triangular(lu, _triangular(lu, b, upper=False, unit=True), upper=True)


@lower("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(ctx: Ctx, A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise Unsupported("LU without pivoting")
    lu, pivots, _ = lax.linalg.lu(A)
    return lu, pivots + 1, _singular(lu)


@lower("aten._linalg_solve_ex.default")
def solve_ex(ctx: Ctx, A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, permutation = lax.linalg.lu(A)
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    b = B[..., None] if vector else B
    if left:
        solution = _lu_solve(lu, permutation, b)
    else:  # x A = b: A^T x^T = b^T
        factors, _, order = lax.linalg.lu(jnp.swapaxes(A, -1, -2))
        solution = jnp.swapaxes(_lu_solve(factors, order, jnp.swapaxes(b, -1, -2)), -1, -2)
    return solution[..., 0] if vector else solution, lu, pivots + 1, _singular(lu)


@lower("aten.linalg_lu_solve.default")
def lu_solve(ctx: Ctx, LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    permutation = lax.linalg.lu_pivots_to_permutation(pivots - 1, LU.shape[-1])
    if left and not adjoint:
        return _lu_solve(LU, permutation, B)
    raise Unsupported("an LU solve from the right, or of the adjoint")


@lower("aten.lu_unpack.default")
def lu_unpack(ctx: Ctx, LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    rows, columns = LU_data.shape[-2:]
    k = min(rows, columns)
    permutation = lower_part = upper_part = None
    if unpack_pivots:
        order = lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, rows)
        permutation = jnp.swapaxes(jax.nn.one_hot(order, rows, dtype=LU_data.dtype), -1, -2)
    if unpack_data:
        lower_part = jnp.tril(LU_data[..., :k], -1) + jnp.eye(rows, k, dtype=LU_data.dtype)
        upper_part = jnp.triu(LU_data[..., :k, :])
    empty = jnp.zeros((0,), LU_data.dtype)
    return tuple(empty if part is None else part for part in (permutation, lower_part, upper_part))


@lower("aten.linalg_qr.default")
def qr(ctx: Ctx, A: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.linalg.qr(A, mode="r")
    q, r = jnp.linalg.qr(A, mode=mode)
    return q, r


@lower("aten._linalg_eigh.default")
def eigh(ctx: Ctx, A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    A = A if UPLO.upper() == "L" else _adjoint(A)
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


@lower("aten.linalg_householder_product.default")
def householder_product(ctx: Ctx, input: Any, tau: Any) -> Any:
    return lax.linalg.householder_product(input, tau)


@lower("aten.linalg_matrix_exp.default")
def matrix_exp(ctx: Ctx, self: Any) -> Any:
    return jsl.expm(self)


@lower("aten.trace.default")
def trace(ctx: Ctx, self: Any) -> Any:
    return jnp.trace(self)


@lower("aten.linalg_cross.default")
def cross(ctx: Ctx, self: Any, other: Any, *, dim: int = -1) -> Any:
    return jnp.cross(self, other, axis=dim)
