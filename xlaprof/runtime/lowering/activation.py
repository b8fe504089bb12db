"""Activation functions and their gradients."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from xlaprof.runtime.lowering.registry import (
    Ctx,
    float_opmath,
    is_complex,
    lower,
    opmath,
    scalar,
)


def _conj(x: Any) -> Any:
    return jnp.conj(x) if is_complex(x) else x


@lower("aten.relu.default")
def relu(ctx: Ctx, self: Any) -> Any:
    return jnp.maximum(self, jnp.zeros((), self.dtype))


@lower("aten.threshold.default")
def threshold(ctx: Ctx, self: Any, threshold: Any, value: Any) -> Any:
    (x,) = opmath(ctx, self)
    return jnp.where(x <= scalar(threshold, x.dtype), scalar(value, x.dtype), x)


@lower("aten.threshold_backward.default")
def threshold_backward(ctx: Ctx, grad_output: Any, self: Any, threshold: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return jnp.where(x <= scalar(threshold, x.dtype), 0, grad)


@lower("aten.sigmoid.default", "aten.special_expit.default")
def sigmoid(ctx: Ctx, self: Any) -> Any:
    (x,) = float_opmath(ctx, self)
    return 1 / (1 + jnp.exp(-x)) if is_complex(x) else jax.nn.sigmoid(x)


@lower("aten.sigmoid_backward.default")
def sigmoid_backward(ctx: Ctx, grad_output: Any, output: Any) -> Any:
    grad, y = opmath(ctx, grad_output, output)
    return grad * _conj((1 - y) * y)


@lower("aten.tanh.default")
def tanh(ctx: Ctx, self: Any) -> Any:
    return jnp.tanh(*float_opmath(ctx, self))


@lower("aten.tanh_backward.default")
def tanh_backward(ctx: Ctx, grad_output: Any, output: Any) -> Any:
    grad, y = opmath(ctx, grad_output, output)
    return grad * _conj(1 - y * y)


@lower("aten.silu.default")
def silu(ctx: Ctx, self: Any) -> Any:
    (x,) = opmath(ctx, self)
    return x / (1 + jnp.exp(-x)) if is_complex(x) else x * jax.nn.sigmoid(x)


@lower("aten.silu_backward.default")
def silu_backward(ctx: Ctx, grad_output: Any, self: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    s = jax.nn.sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@lower("aten.gelu.default")
def gelu(ctx: Ctx, self: Any, approximate: str = "none") -> Any:
    (x,) = opmath(ctx, self)
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(_gelu_inner(x)))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _gelu_inner(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


@lower("aten.gelu_backward.default")
def gelu_backward(ctx: Ctx, grad_output: Any, self: Any, approximate: str = "none") -> Any:
    grad, x = opmath(ctx, grad_output, self)
    if approximate == "tanh":
        t = jnp.tanh(_gelu_inner(x))
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    cdf = 0.5 * (1 + erf(x * math.sqrt(0.5)))
    pdf = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (cdf + x * pdf)


@lower("aten.leaky_relu.default")
def leaky_relu(ctx: Ctx, self: Any, negative_slope: Any = 0.01) -> Any:
    (x,) = opmath(ctx, self)
    return jnp.where(x > 0, x, x * scalar(negative_slope, x.dtype))


@lower("aten.leaky_relu_backward.default")
def leaky_relu_backward(ctx: Ctx, grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return jnp.where(x > 0, grad, grad * scalar(negative_slope, x.dtype))


@lower("aten.elu.default")
def elu(ctx: Ctx, self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    (x,) = opmath(ctx, self)
    alpha, scale, input_scale = (scalar(v, x.dtype) for v in (alpha, scale, input_scale))
    below = jnp.expm1(jnp.minimum(x, 0) * input_scale)
    return jnp.where(x > 0, x * scale, below * alpha * scale)


@lower("aten.elu_backward.default")
def elu_backward(
    ctx: Ctx, grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any
) -> Any:
    grad, x = opmath(ctx, grad_output, self_or_result)
    alpha, scale, input_scale = (scalar(v, x.dtype) for v in (alpha, scale, input_scale))
    if is_result:
        below = input_scale * (x + alpha * scale)
    else:
        below = input_scale * alpha * scale * jnp.exp(jnp.minimum(x, 0) * input_scale)
    return grad * jnp.where(x <= 0, below, scale)


@lower("aten.celu.default")
def celu(ctx: Ctx, self: Any, alpha: Any = 1.0) -> Any:
    (x,) = opmath(ctx, self)
    alpha = scalar(alpha, x.dtype)
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@lower("aten.selu.default")
def selu(ctx: Ctx, self: Any) -> Any:
    return elu(ctx, self, _SELU_ALPHA, _SELU_SCALE, 1)


@lower("aten.hardtanh.default")
def hardtanh(ctx: Ctx, self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    (x,) = opmath(ctx, self)
    return jnp.minimum(jnp.maximum(x, scalar(min_val, x.dtype)), scalar(max_val, x.dtype))


@lower("aten.hardtanh_backward.default")
def hardtanh_backward(ctx: Ctx, grad_output: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    outside = (x <= scalar(min_val, x.dtype)) | (x >= scalar(max_val, x.dtype))
    return jnp.where(outside, 0, grad)


@lower("aten.relu6.default")
def relu6(ctx: Ctx, self: Any) -> Any:
    return hardtanh(ctx, self, 0, 6)


@lower("aten.hardsigmoid.default")
def hardsigmoid(ctx: Ctx, self: Any) -> Any:
    (x,) = opmath(ctx, self)
    return jnp.clip(x + 3, 0, 6) / 6


@lower("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(ctx: Ctx, grad_output: Any, self: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return jnp.where((x > -3) & (x < 3), grad / 6, 0)


@lower("aten.hardswish.default")
def hardswish(ctx: Ctx, self: Any) -> Any:
    (x,) = opmath(ctx, self)
    return x * jnp.clip(x + 3, 0, 6) / 6


@lower("aten.hardswish_backward.default")
def hardswish_backward(ctx: Ctx, grad_output: Any, self: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return jnp.where(x <= -3, 0, jnp.where(x < 3, grad * (x / 3 + 0.5), grad))


@lower("aten.softplus.default")
def softplus(ctx: Ctx, self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    (x,) = opmath(ctx, self)
    beta, threshold = scalar(beta, x.dtype), scalar(threshold, x.dtype)
    return jnp.where(x * beta > threshold, x, jnp.log1p(jnp.exp(x * beta)) / beta)


@lower("aten.softplus_backward.default")
def softplus_backward(ctx: Ctx, grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    beta, threshold = scalar(beta, x.dtype), scalar(threshold, x.dtype)
    return jnp.where(x * beta > threshold, grad, grad * jax.nn.sigmoid(x * beta))


@lower("aten.mish.default")
def mish(ctx: Ctx, self: Any) -> Any:
    (x,) = opmath(ctx, self)
    return x * jnp.tanh(jax.nn.softplus(x))


@lower("aten.mish_backward.default")
def mish_backward(ctx: Ctx, grad_output: Any, self: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    t = jnp.tanh(jax.nn.softplus(x))
    return grad * (t + x * jax.nn.sigmoid(x) * (1 - t * t))


@lower("aten.log_sigmoid_forward.default")
def log_sigmoid_forward(ctx: Ctx, self: Any) -> Any:
    (x,) = opmath(ctx, self)
    # The second output is a buffer of the CPU kernel, exp(-|x|); other devices leave it empty.
    buffer = jnp.exp(-jnp.abs(x))
    return jnp.minimum(x, 0) - jnp.log1p(buffer), jnp.resize(buffer, ctx.out[1].shape)


@lower("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(ctx: Ctx, grad_output: Any, self: Any, buffer: Any) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    return grad * jax.nn.sigmoid(-x)


# The shrinking functions compare with ``lambd`` in the tensor's own dtype, half precisions included.
@lower("aten.softshrink.default")
def softshrink(ctx: Ctx, self: Any, lambd: Any = 0.5) -> Any:
    (self,) = opmath(ctx, self)
    lambd = scalar(lambd, self.dtype)
    return jnp.where(self > lambd, self - lambd, jnp.where(self < -lambd, self + lambd, self * 0))


@lower("aten.hardshrink.default")
def hardshrink(ctx: Ctx, self: Any, lambd: Any = 0.5) -> Any:
    lambd = scalar(lambd, self.dtype)
    return jnp.where((self >= -lambd) & (self <= lambd), 0, self)


@lower("aten.softshrink_backward.default", "aten.hardshrink_backward.default")
def shrink_backward(ctx: Ctx, grad_output: Any, self: Any, lambd: Any) -> Any:
    lambd = scalar(lambd, self.dtype)
    return jnp.where((self >= -lambd) & (self <= lambd), 0, grad_output)


@lower("aten.glu.default")
def glu(ctx: Ctx, self: Any, dim: int = -1) -> Any:
    (x,) = opmath(ctx, self)
    a, b = jnp.split(x, 2, dim)
    return a * jax.nn.sigmoid(b)


@lower("aten.glu_backward.default")
def glu_backward(ctx: Ctx, grad_output: Any, self: Any, dim: int) -> Any:
    grad, x = opmath(ctx, grad_output, self)
    a, b = jnp.split(x, 2, dim)
    s = jax.nn.sigmoid(b)
    return jnp.concatenate([grad * s, grad * a * s * (1 - s)], dim)


@lower("aten._prelu_kernel.default")
def prelu(ctx: Ctx, self: Any, weight: Any) -> Any:
    x, weight = opmath(ctx, self, weight)
    return jnp.where(x > 0, x, x * weight)


@lower("aten._prelu_kernel_backward.default")
def prelu_backward(ctx: Ctx, grad_output: Any, self: Any, weight: Any) -> Any:
    grad, x, weight = opmath(ctx, grad_output, self, weight)
    return jnp.where(x > 0, grad, grad * weight), jnp.where(x > 0, 0, grad * x)


@lower("aten.rrelu_with_noise_backward.default")
def rrelu_backward(
    ctx: Ctx, grad_output: Any, self: Any, noise: Any, lower: Any, upper: Any, training: bool, self_is_result: bool
) -> Any:
    grad, x, noise = opmath(ctx, grad_output, self, noise)
    if training:
        return grad * noise
    slope = (scalar(lower, x.dtype) + scalar(upper, x.dtype)) / 2
    return jnp.where(x > 0, grad, grad * slope)
