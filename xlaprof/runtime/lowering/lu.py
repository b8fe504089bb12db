"""LU factorisations with partial pivoting, and their solvers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .linalg import adjoint, eye_like, triangular
from .registry import Ctx, Unsupported, lower


def factor(a: Any) -> tuple[Any, Any, Any]:
    """``L`` and ``U`` in one matrix, LAPACK's pivots (0-based), and the permutation: ``a[permutation] = L U``."""
    if 0 in a.shape:
        rows, columns = a.shape[-2:]
        order = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (*a.shape[:-2], rows))
        return a, order[..., : min(rows, columns)], order
    lu, pivots, permutation = lax.linalg.lu(a)
    return lu, pivots, permutation


def _singular(lu: Any) -> Any:
    """``info`` of an LU factorisation: the number of the first zero on its diagonal, or 0."""
    if 0 in lu.shape:
        return jnp.zeros(lu.shape[:-2], jnp.int32)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    return jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32)


def _solve(lu: Any, permutation: Any, b: Any) -> Any:
    """``A^-1 b`` given ``A[permutation] = L U``."""
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    permutation = jnp.broadcast_to(permutation, (*batch, permutation.shape[-1]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    b = jnp.take_along_axis(b, permutation[..., None], -2)
    return triangular(lu, triangular(lu, b, upper=False, unit=True), upper=True)


def _solve_adjoint(lu: Any, permutation: Any, b: Any) -> Any:
    """``A^-H b`` given ``A[permutation] = L U``."""
    y = triangular(lu, triangular(lu, b, upper=True, adjoint=True), upper=False, unit=True, adjoint=True)
    back = jnp.broadcast_to(jnp.argsort(permutation, axis=-1), (*y.shape[:-2], permutation.shape[-1]))
    return jnp.take_along_axis(y, back[..., None], -2)


@lower("aten.linalg_inv_ex.default")
def inv_ex(ctx: Ctx, A: Any, *, check_errors: bool = False) -> Any:
    lu, _, permutation = factor(A)
    return _solve(lu, permutation, eye_like(A)), _singular(lu)


@lower("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(ctx: Ctx, A: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise Unsupported("LU without pivoting")
    lu, pivots, _ = factor(A)
    return lu, pivots + 1, _singular(lu)


@lower("aten.linalg_lu.default")
def linalg_lu(ctx: Ctx, A: Any, *, pivot: bool = True) -> Any:
    if not pivot:
        raise Unsupported("LU without pivoting")
    lu, _, permutation = factor(A)
    return _permutation_matrix(permutation, A.dtype), *_parts(lu)


@lower("aten._linalg_solve_ex.default")
def solve_ex(ctx: Ctx, A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, permutation = factor(A)
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    b = B[..., None] if vector else B
    # x A = b: A^H x^H = b^H
    solution = _solve(lu, permutation, b) if left else adjoint(_solve_adjoint(lu, permutation, adjoint(b)))
    return solution[..., 0] if vector else solution, lu, pivots + 1, _singular(lu)


@lower("aten.linalg_lu_solve.default")
def lu_solve(ctx: Ctx, LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    if 0 in ctx.out[0].shape:
        return jnp.zeros(ctx.out[0].shape, ctx.out[0].jax)
    permutation = lax.linalg.lu_pivots_to_permutation(pivots - 1, LU.shape[-1])
    if left:
        return (_solve_adjoint if adjoint else _solve)(LU, permutation, B)
    # x A = b: A^H x^H = b^H; and x A^H = b: A x^H = b^H
    return _adjoint((_solve if adjoint else _solve_adjoint)(LU, permutation, _adjoint(B)))


#: ``adjoint`` is also the name of an argument
_adjoint = adjoint


@lower("aten.lu_unpack.default")
def lu_unpack(ctx: Ctx, LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    empty = jnp.zeros((0,), LU_data.dtype)
    permutation, parts = empty, (empty, empty)
    if unpack_pivots:
        rows = LU_data.shape[-2]
        if LU_pivots.size:
            order = lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, rows)
        else:
            order = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), (*LU_data.shape[:-2], rows))
        permutation = _permutation_matrix(order, LU_data.dtype)
    if unpack_data:
        parts = _parts(LU_data)
    return permutation, *parts


def _permutation_matrix(order: Any, dtype: Any) -> Any:
    """``P`` with ``A = P L U``, where ``A[order] = L U``."""
    return jnp.swapaxes(jax.nn.one_hot(order, order.shape[-1], dtype=dtype), -1, -2)


def _parts(lu: Any) -> tuple[Any, Any]:
    rows, columns = lu.shape[-2:]
    k = min(rows, columns)
    return jnp.tril(lu[..., :k], -1) + jnp.eye(rows, k, dtype=lu.dtype), jnp.triu(lu[..., :k, :])
