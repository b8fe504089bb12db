"""Reductions: sums, moments, extrema, norms, tests."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp as jax_logsumexp

from .conversion import cast
from .registry import (
    Ctx,
    Unsupported,
    direct_table,
    float_opmath,
    is_complex,
    is_floating,
    is_integral,
    lower,
    normalize_dims,
    opmath_dtype,
    overloads,
    scalar,
)


def _axes(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce; a 0-dim tensor has none, though PyTorch accepts dimension 0 of it."""
    return normalize_dims(dim, ndim) if ndim else ()


def accumulable(ctx: Ctx, x: Any) -> Any:
    """``x`` in the dtype its sum is computed in: the output's, with half precisions widened."""
    return cast(x, opmath_dtype(ctx.out[0].jax))


def _reduction(fn: Any, prepare: Any, *names: str) -> None:
    """``names`` are ``fn`` over what ``prepare`` makes of the tensor."""

    @lower(*names)
    def reduce(ctx: Ctx, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        return fn(prepare(ctx, self), _axes(dim, self.ndim), keepdims=keepdim)


def _unchanged(ctx: Ctx, x: Any) -> Any:
    return x


def _as_bool(ctx: Ctx, x: Any) -> Any:
    return x.astype(bool)


_reduction(jnp.sum, accumulable, "aten.sum.default", "aten.sum.dim_IntList")
_reduction(jnp.nansum, accumulable, "aten.nansum.default")
_reduction(jnp.mean, accumulable, "aten.mean.default", "aten.mean.dim")
_reduction(jnp.prod, accumulable, "aten.prod.default", "aten.prod.dim_int")
_reduction(jnp.max, _unchanged, "aten.amax.default", "aten.max.default")
_reduction(jnp.min, _unchanged, "aten.amin.default", "aten.min.default")
_reduction(jnp.any, _as_bool, "aten.any.default", "aten.any.dim", "aten.any.dims", "aten._is_any_true.default")
_reduction(jnp.all, _as_bool, "aten.all.default", "aten.all.dim", "aten.all.dims", "aten._is_all_true.default")


def _moments(x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    """Variance and mean over ``dim``."""
    x = x.astype(opmath_dtype(x.dtype))
    dims = _axes(dim, x.ndim)
    count = math.prod(x.shape[d] for d in dims)
    average = jnp.mean(x, dims, keepdims=True)
    distance = x - average
    squares = jnp.abs(distance) ** 2 if is_complex(x) else distance * distance
    freedom = jnp.maximum(count - scalar(1 if correction is None else correction, squares.dtype), 0)
    variance = jnp.sum(squares, dims, keepdims=keepdim) / freedom
    return variance, average if keepdim else jnp.squeeze(average, dims)


def _statistics(name: str, of: Any) -> None:
    """``name`` is ``of(variance, mean)``."""

    @lower(f"aten.{name}.correction")
    def statistics(ctx: Ctx, self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        return of(*_moments(self, dim, correction, keepdim))


_statistics("var", lambda variance, mean: variance)
_statistics("std", lambda variance, mean: jnp.sqrt(variance))
_statistics("var_mean", lambda variance, mean: (variance, mean))
_statistics("std_mean", lambda variance, mean: (jnp.sqrt(variance), mean))


def _extremum(x: Any, dim: int, keepdim: bool, find: Any) -> tuple[Any, Any]:
    """The extremum along ``dim``, and where it is."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    return _picked(x, find(x, dim, keepdims=True), dim, keepdim)


def _picked(x: Any, where: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The values at ``where`` along ``dim``, and ``where``."""
    values = jnp.take_along_axis(x, where, dim)
    return (values, where) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(where, dim))


def _argument(x: Any, dim: int | None, keepdim: bool, find: Any) -> Any:
    return find(x, dim, keepdims=keepdim) if x.ndim else jnp.zeros((), jnp.int64)


direct_table(
    {
        "count_nonzero count_nonzero.dim_IntList": lambda x, dim=None: jnp.sum(
            x != 0, _axes(dim, x.ndim), dtype=jnp.int64
        ),
        "aminmax": lambda x, *, dim=None, keepdim=False: tuple(
            find(x, _axes(dim, x.ndim), keepdims=keepdim) for find in (jnp.min, jnp.max)
        ),
        "max.dim": lambda x, dim, keepdim=False: _extremum(x, dim, keepdim, jnp.argmax),
        "min.dim": lambda x, dim, keepdim=False: _extremum(x, dim, keepdim, jnp.argmin),
        "argmax": lambda x, dim=None, keepdim=False: _argument(x, dim, keepdim, jnp.argmax),
        "argmin": lambda x, dim=None, keepdim=False: _argument(x, dim, keepdim, jnp.argmin),
    }
)


@lower("aten.linalg_vector_norm.default", static=("ord",))
@lower(*overloads("norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dtype norm.ScalarOpt_dim_dtype"), static=("p",))
def norm(ctx: Ctx, self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if isinstance(p, jax.Array):
        raise Unsupported("a norm whose order is known at run time only")
    size = jnp.abs(self).astype(opmath_dtype(ctx.out[0].jax))
    return p_norm(size, 2 if p is None else p, _axes(dim, self.ndim), keepdim)


def p_norm(size: Any, order: float, dims: Any, keepdims: bool = False) -> Any:
    """The norm of ``order`` over ``dims`` of numbers whose absolute values are ``size``."""
    if order == math.inf:
        return jnp.max(size, dims, keepdims=keepdims, initial=0)
    if order == -math.inf:
        return jnp.min(size, dims, keepdims=keepdims)
    if order == 0:
        return jnp.sum(size != 0, dims, keepdims=keepdims)
    if order == 1:
        return jnp.sum(size, dims, keepdims=keepdims)
    if order == 2:
        return jnp.sqrt(jnp.sum(size * size, dims, keepdims=keepdims))
    return jnp.sum(size**order, dims, keepdims=keepdims) ** (1 / order)


@lower("aten.logsumexp.default")
def logsumexp(ctx: Ctx, self: Any, dim: Any, keepdim: bool = False) -> Any:
    (x,) = float_opmath(ctx, self)
    return jax_logsumexp(x, _axes(dim, x.ndim), keepdims=keepdim)


def _medians(name: str, skip_nan: bool) -> None:
    @lower(f"aten.{name}.default")
    def median(ctx: Ctx, self: Any) -> Any:
        if self.size == 0:
            raise Unsupported("the median of nothing")
        return _median(self.reshape(-1), 0, False, skip_nan)[0]

    @lower(f"aten.{name}.dim")
    def median_dim(ctx: Ctx, self: Any, dim: int, keepdim: bool = False) -> Any:
        return _median(self, dim, keepdim, skip_nan)


_medians("median", skip_nan=False)
_medians("nanmedian", skip_nan=True)


def _median(x: Any, dim: int, keepdim: bool, skip_nan: bool) -> tuple[Any, Any]:
    """The lower median along ``dim`` and its index; NaN wins unless skipped."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int64)
    order = jnp.argsort(x, dim, stable=True)  # NaN sorts last
    last = jnp.full([1 if d == dim % x.ndim else n for d, n in enumerate(x.shape)], x.shape[dim] - 1, jnp.int64)
    place = last // 2
    if not is_integral(x):
        nans = jnp.sum(jnp.isnan(x), dim, keepdims=True)
        place = jnp.maximum(last - nans, 0) // 2 if skip_nan else jnp.where(nans > 0, last - nans + 1, place)
    return _picked(x, jnp.take_along_axis(order, place, dim), dim, keepdim)


@lower("aten.dist.default", static=("p",))
def dist(ctx: Ctx, self: Any, other: Any, p: Any = 2) -> Any:
    self, other = float_opmath(ctx, self, other)
    return norm(ctx, self - other, p)


@lower("aten.renorm.default", static=("p",))
def renorm(ctx: Ctx, self: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    dims = tuple(d for d in range(self.ndim) if d != dim % self.ndim)
    size = norm(ctx, self, p, dims, True)
    limit = scalar(maxnorm, size.dtype)
    return jnp.where(size > limit, self * (limit / (size + 1e-7)), self)


@lower("aten.histc.default", static=("min", "max"))
def histc(ctx: Ctx, self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    if isinstance(min, jax.Array) or isinstance(max, jax.Array):
        raise Unsupported("a histogram between bounds known at run time only")
    if self.size == 0:
        return jnp.zeros(bins)
    x = self.reshape(-1)
    low, high = (jnp.min(x), jnp.max(x)) if min == max else (jnp.asarray(min, x.dtype), jnp.asarray(max, x.dtype))
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    if is_floating(x):
        slot = ((x - low) / (high - low) * bins).astype(jnp.int64)
    else:  # as CUDA has it; PyTorch's CPU has no histogram of integers
        x, low, high = x.astype(jnp.int64), low.astype(jnp.int64), high.astype(jnp.int64)
        slot = (x - low) * bins // (high - low)
    slot = jnp.clip(slot, 0, bins - 1)
    inside = (x >= low) & (x <= high)
    return jnp.zeros(bins, self.dtype).at[slot].add(inside.astype(self.dtype))


@lower("aten.hash_tensor.default")
def hash_tensor(ctx: Ctx, self: Any, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """The exclusive or of the elements' bits, as float64 or int64."""
    if is_complex(self):
        raise Unsupported("a hash of complex numbers")
    bits = lax.bitcast_convert_type(self.astype(jnp.float64 if is_floating(self) else jnp.int64), jnp.uint64)
    dims = _axes(dim, self.ndim)
    return lax.reduce(bits, jnp.uint64(0), lax.bitwise_xor, dims).reshape(ctx.out[0].shape)
