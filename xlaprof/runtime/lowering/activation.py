"""Activation functions and their gradients."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from .registry import Array, Ctx, direct_table, float_opmath, is_complex, lower, opmath, pointwise, scalar


def _conj(x: Array) -> Array:
    return jnp.conj(x) if is_complex(x) else x


@pointwise("aten.threshold.default")
def threshold(x: Array, threshold: Any, value: Any) -> Array:
    return jnp.where(x <= threshold, value, x)


@pointwise("aten.threshold_backward.default", tensors=2)
def threshold_backward(grad: Array, x: Array, threshold: Any) -> Array:
    return jnp.where(x <= threshold, 0, grad)


@pointwise("aten.sigmoid.default", "aten.special_expit.default", to=float_opmath)
def sigmoid(x: Array) -> Array:
    return 1 / (1 + jnp.exp(-x)) if is_complex(x) else jax.nn.sigmoid(x)


@pointwise("aten.sigmoid_backward.default", tensors=2)
def sigmoid_backward(grad: Array, y: Array) -> Array:
    return grad * _conj((1 - y) * y)


pointwise("aten.tanh.default", to=float_opmath)(jnp.tanh)


@pointwise("aten.tanh_backward.default", tensors=2)
def tanh_backward(grad: Array, y: Array) -> Array:
    return grad * _conj(1 - y * y)


@pointwise("aten.silu.default")
def silu(x: Array) -> Array:
    return x / (1 + jnp.exp(-x)) if is_complex(x) else x * jax.nn.sigmoid(x)


@pointwise("aten.silu_backward.default", tensors=2)
def silu_backward(grad: Array, x: Array) -> Array:
    s = jax.nn.sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@pointwise("aten.gelu.default")
def gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(_gelu_inner(x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _gelu_inner(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


@pointwise("aten.gelu_backward.default", tensors=2)
def gelu_backward(grad: Array, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        t = jnp.tanh(_gelu_inner(x))
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    cdf = 0.5 * (1 + erf(x * math.sqrt(0.5)))
    pdf = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (cdf + x * pdf)


@pointwise("aten.leaky_relu.default")
def leaky_relu(x: Array, negative_slope: Any = 0.01) -> Array:
    return jnp.where(x > 0, x, x * negative_slope)


@pointwise("aten.leaky_relu_backward.default", tensors=2)
def leaky_relu_backward(grad: Array, x: Array, negative_slope: Any, self_is_result: bool) -> Array:
    return jnp.where(x > 0, grad, grad * negative_slope)


@pointwise("aten.elu.default")
def elu(x: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
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


@pointwise("aten.celu.default")
def celu(x: Array, alpha: Any = 1.0) -> Array:
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@pointwise("aten.selu.default")
def selu(x: Array) -> Array:
    return elu(x, scalar(_SELU_ALPHA, x.dtype), scalar(_SELU_SCALE, x.dtype), scalar(1, x.dtype))


@pointwise("aten.hardtanh.default")
def hardtanh(x: Array, min_val: Any = -1, max_val: Any = 1) -> Array:
    return jnp.minimum(jnp.maximum(x, min_val), max_val)


@pointwise("aten.hardtanh_backward.default", tensors=2)
def hardtanh_backward(grad: Array, x: Array, min_val: Any, max_val: Any) -> Array:
    return jnp.where((x <= min_val) | (x >= max_val), 0, grad)


@pointwise("aten.relu6.default")
def relu6(x: Array) -> Array:
    return hardtanh(x, scalar(0, x.dtype), scalar(6, x.dtype))


@pointwise("aten.hardsigmoid.default")
def hardsigmoid(x: Array) -> Array:
    return jnp.clip(x + 3, 0, 6) / 6


@pointwise("aten.hardsigmoid_backward.default", tensors=2)
def hardsigmoid_backward(grad: Array, x: Array) -> Array:
    return jnp.where((x > -3) & (x < 3), grad / 6, 0)


@pointwise("aten.hardswish.default")
def hardswish(x: Array) -> Array:
    return x * jnp.clip(x + 3, 0, 6) / 6


@pointwise("aten.hardswish_backward.default", tensors=2)
def hardswish_backward(grad: Array, x: Array) -> Array:
    return jnp.where(x <= -3, 0, jnp.where(x < 3, grad * (x / 3 + 0.5), grad))


@pointwise("aten.softplus.default")
def softplus(x: Array, beta: Any = 1, threshold: Any = 20) -> Array:
    return jnp.where(x * beta > threshold, x, jnp.log1p(jnp.exp(x * beta)) / beta)


@pointwise("aten.softplus_backward.default", tensors=2)
def softplus_backward(grad: Array, x: Array, beta: Any, threshold: Any) -> Array:
    return jnp.where(x * beta > threshold, grad, grad * jax.nn.sigmoid(x * beta))


@pointwise("aten.mish.default")
def mish(x: Array) -> Array:
    return x * jnp.tanh(jax.nn.softplus(x))


@pointwise("aten.mish_backward.default", tensors=2)
def mish_backward(grad: Array, x: Array) -> Array:
    t = jnp.tanh(jax.nn.softplus(x))
    return grad * (t + x * jax.nn.sigmoid(x) * (1 - t * t))


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


# The shrinking functions compare with ``lambd`` in the tensor's own dtype, half precisions included.
@pointwise("aten.softshrink.default")
def softshrink(x: Array, lambd: Any = 0.5) -> Array:
    return jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0))


def _shrunk(grad: Array, x: Array, lambd: Any) -> Array:
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


@pointwise("aten._prelu_kernel.default", tensors=2)
def prelu(x: Array, weight: Array) -> Array:
    return jnp.where(x > 0, x, x * weight)


@pointwise("aten._prelu_kernel_backward.default", tensors=3)
def prelu_backward(grad: Array, x: Array, weight: Array) -> tuple[Array, Array]:
    return jnp.where(x > 0, grad, grad * weight), jnp.where(x > 0, 0, grad * x)


@pointwise("aten.rrelu_with_noise_backward.default", tensors=3)
def rrelu_backward(
    grad: Array, x: Array, noise: Array, low: Any, high: Any, training: bool, self_is_result: bool
) -> Array:
    return grad * noise if training else jnp.where(x > 0, grad, grad * ((low + high) / 2))
