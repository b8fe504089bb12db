"""Activation functions and their gradients."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from .registry import Array, Ctx, direct_table, float_opmath, is_complex, lower, opmath, pointwise_table, scalar


def _conj(x: Array) -> Array:
    return jnp.conj(x) if is_complex(x) else x


def _gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(_gelu_inner(x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _gelu_inner(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


def _gelu_backward(grad: Array, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        t = jnp.tanh(_gelu_inner(x))
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    cdf = 0.5 * (1 + erf(x * math.sqrt(0.5)))
    pdf = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (cdf + x * pdf)


def _silu_backward(grad: Array, x: Array) -> Array:
    s = jax.nn.sigmoid(x)
    return grad * s * (1 + x * (1 - s))


def _mish_backward(grad: Array, x: Array) -> Array:
    t = jnp.tanh(jax.nn.softplus(x))
    return grad * (t + x * jax.nn.sigmoid(x) * (1 - t * t))


def _elu(x: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    below = jnp.expm1(jnp.minimum(x, 0) * input_scale)
    return jnp.where(x > 0, x * scale, below * alpha * scale)


@lower("aten.elu_backward.default")
def elu_backward(
    ctx: Ctx, grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any
) -> Array:
    grad, x = opmath(ctx, grad_output, self_or_result)
    alpha, scale, input_scale = (scalar(v, x.dtype) for v in (alpha, scale, input_scale))
    if is_result:
        below = input_scale * (x + alpha * scale)
    else:
        below = input_scale * alpha * scale * jnp.exp(jnp.minimum(x, 0) * input_scale)
    return grad * jnp.where(x <= 0, below, scale)  # type: ignore[no-any-return]


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

pointwise_table(
    {
        "sigmoid special_expit": lambda x: 1 / (1 + jnp.exp(-x)) if is_complex(x) else jax.nn.sigmoid(x),
        "tanh": jnp.tanh,
    },
    to=float_opmath,
)
pointwise_table(
    {
        "threshold": lambda x, threshold, value: jnp.where(x <= threshold, value, x),
        "silu": lambda x: x / (1 + jnp.exp(-x)) if is_complex(x) else x * jax.nn.sigmoid(x),
        "gelu": _gelu,
        "leaky_relu": lambda x, negative_slope=0.01: jnp.where(x > 0, x, x * negative_slope),
        "elu": _elu,
        "celu": lambda x, alpha=1.0: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha)),
        "selu": lambda x: _elu(x, _SELU_ALPHA, _SELU_SCALE),
        "hardtanh": lambda x, min_val=-1, max_val=1: jnp.minimum(jnp.maximum(x, min_val), max_val),
        "relu6": lambda x: jnp.minimum(jnp.maximum(x, 0), 6),
        "hardsigmoid": lambda x: jnp.clip(x + 3, 0, 6) / 6,
        "hardswish": lambda x: x * jnp.clip(x + 3, 0, 6) / 6,
        "softplus": lambda x, beta=1, threshold=20: jnp.where(
            x * beta > threshold, x, jnp.log1p(jnp.exp(x * beta)) / beta
        ),
        "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
        "softshrink": lambda x, lambd=0.5: jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0)),
    }
)
pointwise_table(
    {
        "threshold_backward": lambda grad, x, threshold: jnp.where(x <= threshold, 0, grad),
        "sigmoid_backward": lambda grad, y: grad * _conj((1 - y) * y),
        "tanh_backward": lambda grad, y: grad * _conj(1 - y * y),
        "silu_backward": _silu_backward,
        "gelu_backward": _gelu_backward,
        "leaky_relu_backward": lambda grad, x, slope, is_result: jnp.where(x > 0, grad, grad * slope),
        "hardtanh_backward": lambda grad, x, low, high: jnp.where((x <= low) | (x >= high), 0, grad),
        "hardsigmoid_backward": lambda grad, x: jnp.where((x > -3) & (x < 3), grad / 6, 0),
        "hardswish_backward": lambda grad, x: jnp.where(x <= -3, 0, jnp.where(x < 3, grad * (x / 3 + 0.5), grad)),
        "softplus_backward": lambda grad, x, beta, threshold: jnp.where(
            x * beta > threshold, grad, grad * jax.nn.sigmoid(x * beta)
        ),
        "mish_backward": _mish_backward,
        "_prelu_kernel": lambda x, weight: jnp.where(x > 0, x, x * weight),
    },
    tensors=2,
)
pointwise_table(
    {
        "_prelu_kernel_backward": lambda grad, x, weight: (
            jnp.where(x > 0, grad, grad * weight),
            jnp.where(x > 0, 0, grad * x),
        ),
        "rrelu_with_noise_backward": lambda grad, x, noise, low, high, training, is_result: (
            grad * noise if training else jnp.where(x > 0, grad, grad * ((low + high) / 2))
        ),
    },
    tensors=3,
)


@lower("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(ctx: Ctx, self: Array) -> tuple[Array, Array]:
    (x,) = opmath(ctx, self)
    # The second output is a buffer of the CPU kernel, exp(-|x|); other devices leave it empty.
    buffer = jnp.exp(-jnp.abs(x))
    return jnp.minimum(x, 0) - jnp.log1p(buffer), jnp.resize(buffer, ctx.out[1].shape)


@lower("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(ctx: Ctx, grad_output: Array, self: Array, buffer: Array) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return grad * jax.nn.sigmoid(-x)


def _shrunk(grad: Array, x: Array, lambd: Any) -> Array:
    """0 within ``lambd`` of 0, compared in the tensor's own dtype, half precisions included."""
    lambd = scalar(lambd, x.dtype)
    return jnp.where((x >= -lambd) & (x <= lambd), 0, grad)


direct_table(
    {
        "relu": lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)),
        "hardshrink": lambda x, lambd=0.5: _shrunk(x, x, lambd),
        "softshrink_backward hardshrink_backward": _shrunk,
    }
)


@lower("aten.glu.default")
def glu(ctx: Ctx, self: Array, dim: int = -1) -> Array:
    (x,) = opmath(ctx, self)
    a, b = jnp.split(x, 2, dim)
    return a * jax.nn.sigmoid(b)


@lower("aten.glu_backward.default")
def glu_backward(ctx: Ctx, grad_output: Array, self: Array, dim: int) -> Array:
    grad, x = opmath(ctx, grad_output, self)
    a, b = jnp.split(x, 2, dim)
    s = jax.nn.sigmoid(b)
    return jnp.concatenate([grad * s, grad * a * s * (1 - s)], dim)
