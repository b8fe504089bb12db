"""Products of matrices and vectors.

float32 is multiplied in full precision on every device: PyTorch's default, but not XLA's on a GPU or TPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xlaprof.runtime.lowering.registry import Ctx, lower, opmath_dtype, scalar


def product(a: Any, b: Any) -> Any:
    """``a @ b``, half precisions accumulated and returned in float32."""
    if a.dtype == jnp.bool_:
        return jnp.matmul(a.astype(jnp.int32), b.astype(jnp.int32)) != 0
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST, preferred_element_type=opmath_dtype(a.dtype))


@lower("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def mm(ctx: Ctx, self: Any, other: Any) -> Any:
    return product(self, other)


@lower("aten.mm.dtype", "aten.bmm.dtype")
def mm_dtype(ctx: Ctx, self: Any, other: Any, out_dtype: Any) -> Any:
    return product(self, other)


@lower("aten.vdot.default")
def vdot(ctx: Ctx, self: Any, other: Any) -> Any:
    return product(jnp.conj(self), other)


@lower("aten.linear.default")
def linear(ctx: Ctx, input: Any, weight: Any, bias: Any = None) -> Any:
    out = product(input, weight.T)
    return out if bias is None else out + bias.astype(out.dtype)


@lower("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default")
def addmm(ctx: Ctx, self: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _weighted_sum(self, product(a, b), beta, alpha)


@lower("aten._addmm_activation.default")
def addmm_activation(
    ctx: Ctx, self: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Any:
    out = _weighted_sum(self, product(a, b), beta, alpha)
    return jax.nn.gelu(out, approximate=True) if use_gelu else jnp.maximum(out, 0)


@lower("aten.addbmm.default")
def addbmm(ctx: Ctx, self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _weighted_sum(self, jnp.sum(product(batch1, batch2), 0), beta, alpha)


@lower("aten.addr.default")
def addr(ctx: Ctx, self: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    dtype = opmath_dtype(ctx.out[0].jax)
    return _weighted_sum(self, jnp.outer(vec1.astype(dtype), vec2.astype(dtype)), beta, alpha)


def _weighted_sum(self: Any, out: Any, beta: Any, alpha: Any) -> Any:
    """``beta * self + alpha * out``, where a ``beta`` of 0 ignores NaN in ``self``."""
    if isinstance(alpha, jax.Array) or alpha != 1:
        out = out * scalar(alpha, out.dtype)
    self = self.astype(out.dtype)
    if not isinstance(beta, jax.Array):
        if beta == 0:
            return out
        if beta == 1:
            return self + out
    weight = scalar(beta, out.dtype)
    return jnp.where(weight == 0, jnp.zeros_like(out), weight * self) + out


@lower("aten._int_mm.default")
def int_mm(ctx: Ctx, self: Any, mat2: Any) -> Any:
    return jnp.matmul(self, mat2, preferred_element_type=jnp.int32)


@lower("aten._trilinear.default")
def trilinear(
    ctx: Ctx, i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    wide = [jnp.expand_dims(x, tuple(e)) for x, e in ((i1, expand1), (i2, expand2), (i3, expand3))]
    dtype = opmath_dtype(i1.dtype)
    rank = wide[0].ndim
    kept = [d for d in range(rank) if d not in sumdim]
    a, b, c = (x.astype(dtype) for x in wide)
    axes = list(range(rank))
    # An einsum keeps XLA from building the full broadcast product.
    terms: list[Any] = []
    for x in (a, b, c):
        live = [d for d in axes if x.shape[d] != 1]
        terms += [jnp.squeeze(x, tuple(d for d in axes if x.shape[d] == 1)), live]
    held = [d for d in kept if any(d in t for t in terms[1::2])]
    out = jnp.einsum(*terms, held, precision=lax.Precision.HIGHEST)
    return out.reshape(ctx.out[0].shape)


@lower("aten._cdist_forward.default")
def cdist(ctx: Ctx, x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    difference = jnp.abs(x1[..., :, None, :] - x2[..., None, :, :])
    if p == 0:
        return jnp.sum(difference != 0, -1)
    if p == float("inf"):
        return jnp.max(difference, -1, initial=0)
    if p == 1:
        return jnp.sum(difference, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(difference * difference, -1))
    return jnp.sum(difference**p, -1) ** (1 / p)


@lower("aten._cdist_backward.default")
def cdist_backward(ctx: Ctx, grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    grad, distance = grad[..., None], cdist[..., None]
    size, sign = jnp.abs(difference), jnp.sign(difference)
    if p == 0:
        return jnp.zeros_like(x1)
    if p == float("inf"):
        towards = jnp.where(size == distance, sign, 0)
    elif p == 1:
        towards = sign
    else:
        # The slope of the distance; zero where two points coincide.
        safe = jnp.where(distance == 0, 1, distance)
        towards = jnp.where(distance == 0, 0, sign * jnp.where(size == 0, 1, size / safe) ** (p - 1))
        towards = jnp.where(size == 0, 0, towards)
    return jnp.sum(grad * towards, -2)
