"""Products of matrices and vectors.

float32 is multiplied in full precision on every device: PyTorch's default, but not XLA's on a GPU or TPU.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from .reduction import p_norm
from .registry import Ctx, Unsupported, direct_table, lower, opmath_dtype, scalar


def product(a: Any, b: Any) -> Any:
    """``a @ b``, half precisions accumulated and returned in float32."""
    if a.dtype == jnp.bool_:
        return jnp.matmul(a.astype(jnp.int32), b.astype(jnp.int32)) != 0
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST, preferred_element_type=opmath_dtype(a.dtype))


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    out = product(x, weight.T)
    return out if bias is None else out + bias.astype(out.dtype)


def _addmm(self: Any, a: Any, b: Any, **weights: Any) -> Any:
    return _weighted_sum(self, product(a, b), **weights)


def _addmm_activation(self: Any, a: Any, b: Any, *, use_gelu: bool = False, **weights: Any) -> Any:
    out = _addmm(self, a, b, **weights)
    return jax.nn.gelu(out, approximate=True) if use_gelu else jnp.maximum(out, 0)


@lower("aten.addr.default")
def addr(ctx: Ctx, self: Any, vec1: Any, vec2: Any, **weights: Any) -> Any:
    dtype = opmath_dtype(ctx.out[0].jax)
    return _weighted_sum(self, jnp.outer(vec1.astype(dtype), vec2.astype(dtype)), **weights)


def _weighted_sum(self: Any, out: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
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


@lower("aten._trilinear.default")
def trilinear(
    ctx: Ctx, i1: Any, i2: Any, i3: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    rank = i1.ndim + len(expand1)
    # An einsum keeps XLA from building the full broadcast product.
    terms: list[Any] = []
    for x, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        dims = [d for d in range(rank) if d not in {e % rank for e in expand}]
        live = [d for d, size in zip(dims, x.shape, strict=True) if size != 1]
        terms += [jnp.squeeze(x).astype(opmath_dtype(x.dtype)), live]
    held = [d for d in range(rank) if d not in sumdim and any(d in live for live in terms[1::2])]
    out = jnp.einsum(*terms, held, precision=lax.Precision.HIGHEST)
    return out.reshape(ctx.out[0].shape)


@lower("aten._grouped_mm.default")
def grouped_mm(
    ctx: Ctx, self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: torch.dtype | None = None
) -> Any:
    """One product per group; ``offs`` holds where each group ends, along the dimension that is not stacked.

    Rows and columns past the last group are zero (PyTorch leaves them undefined).
    """
    if bias is not None:
        raise Unsupported("a bias, which no kernel of PyTorch takes either")
    if offs is None:
        return product(self, mat2)
    sizes = jnp.diff(offs, prepend=jnp.zeros(1, offs.dtype))
    if self.ndim == 3:  # groups of columns
        return jnp.swapaxes(_ragged(jnp.swapaxes(mat2, 0, 1), jnp.swapaxes(self, 1, 2), sizes, _ROWS), 0, 1)
    return _ragged(self, mat2, sizes, _ROWS if mat2.ndim == 3 else _INNER)


_ROWS = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])
_INNER = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])


def _ragged(a: Any, b: Any, sizes: Any, numbers: lax.RaggedDotDimensionNumbers) -> Any:
    return lax.ragged_dot_general(
        a, b, sizes, numbers, precision=lax.Precision.HIGHEST, preferred_element_type=opmath_dtype(a.dtype)
    )


def _slope(difference: Any, distance: Any, p: float) -> Any:
    """Gradient of the p-norm ``distance`` (its dimension is kept); 0 where two points coincide."""
    size, sign = jnp.abs(difference), jnp.sign(difference)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == math.inf:
        return jnp.where(size == distance, sign, 0)
    if p == 1:
        return sign
    ratio = jnp.where(size == 0, 1, size / jnp.where(distance == 0, 1, distance))
    return jnp.where((distance == 0) | (size == 0), 0, sign * ratio ** (p - 1))


def _differences(x1: Any, x2: Any) -> Any:
    return x1[..., :, None, :] - x2[..., None, :, :]


@lower("aten._cdist_backward.default")
def cdist_backward(ctx: Ctx, grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    if not grad.size:  # no batch: its shape says nothing of the gradient's
        return jnp.zeros(ctx.out[0].shape, grad.dtype)
    return jnp.sum(grad[..., None] * _slope(_differences(x1, x2), cdist[..., None], p), -2)


def _pdist(x: Any, p: float = 2) -> Any:
    first, second = np.triu_indices(x.shape[0], 1)
    return p_norm(jnp.abs(x[first] - x[second]), p, -1)


def _pdist_backward(grad: Any, x: Any, p: float, distance: Any) -> Any:
    first, second = np.triu_indices(x.shape[0], 1)
    towards = grad[:, None] * _slope(x[first] - x[second], distance[:, None], p)
    return jnp.zeros_like(x).at[first].add(towards).at[second].add(-towards)


direct_table(
    {
        "mm bmm mv dot mm.dtype bmm.dtype": lambda a, b, out_dtype=None: product(a, b),
        "linear": _linear,
        "addmm addmv baddbmm": _addmm,
        "_addmm_activation": _addmm_activation,
        "addbmm": lambda x, a, b, **weights: _weighted_sum(x, jnp.sum(product(a, b), 0), **weights),
        "vdot": lambda a, b: product(jnp.conj(a), b),
        "_int_mm": lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32),
        "_cdist_forward": lambda x1, x2, p, compute_mode=None: p_norm(jnp.abs(_differences(x1, x2)), p, -1),
        "_pdist_forward": _pdist,
        "_pdist_backward": _pdist_backward,
    }
)
