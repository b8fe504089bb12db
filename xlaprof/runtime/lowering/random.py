"""Random numbers, functions of the key of their operation: one seed and one program give one stream.

They are drawn in one dimension: the numbers are the same, and the program compiles in a sixth of the time.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from .registry import Ctx, Lowering, Unsupported, finfo, iinfo, lower, opmath_dtype, overloads, scalar, wide


def _uniform(ctx: Ctx, shape: Any, dtype: Any) -> Any:
    """Uniform over [0, 1), drawn in ``dtype`` itself: rounding a wider draw could give 1."""
    return jax.random.uniform(ctx.key, (math.prod(shape),), dtype).reshape(shape)


def _out_normal(ctx: Ctx) -> Any:
    """Standard normal, of the output's shape; a complex one has variance 1/2 in each part."""
    out = ctx.out[0].jax
    dtype = out if jnp.dtype(out).kind == "c" else opmath_dtype(out)
    return jax.random.normal(ctx.key, (math.prod(ctx.out[0].shape),), dtype).reshape(ctx.out[0].shape)


@lower(*overloads("rand rand.generator rand_like rand_like.generator"), random=True)
def rand(ctx: Ctx, *args: Any, **kwargs: Any) -> Any:
    shape, dtype = ctx.out[0].shape, jnp.dtype(ctx.out[0].jax)
    if dtype.kind == "c":
        return jax.lax.complex(*_uniform(ctx, (2, *shape), finfo(dtype).dtype))
    return _uniform(ctx, shape, dtype)


@lower("aten.uniform.default", "aten.uniform_.default", random=True)
def uniform(ctx: Ctx, self: Any, low: Any = 0.0, high: Any = 1.0, generator: Any = None) -> Any:
    low, high = scalar(low, self.dtype), scalar(high, self.dtype)
    value = _uniform(ctx, self.shape, self.dtype) * (high - low) + low
    # Rounding may reach the open end.
    return jnp.where((value >= high) & (high > low), low, value)


def _scaled(draw: Any, mean: Any, std: Any) -> Any:
    return draw * scalar(std, draw.dtype) + scalar(mean, draw.dtype)


@lower("aten.exponential.default", "aten.exponential_.default", random=True)
def exponential(ctx: Ctx, self: Any, lambd: Any = 1.0, generator: Any = None) -> Any:
    # Never 0: PyTorch excludes it, and users divide by these.
    draw = -jnp.log1p(-_uniform(ctx, self.shape, opmath_dtype(self.dtype)))
    draw = jnp.maximum(draw, finfo(self.dtype).tiny)
    return draw / scalar(lambd, draw.dtype)


@lower("aten.geometric.default", "aten.geometric_.default", random=True)
def geometric(ctx: Ctx, self: Any, p: Any, generator: Any = None) -> Any:
    u = _uniform(ctx, self.shape, jnp.float64 if self.dtype == jnp.float64 else jnp.float32)
    return jnp.maximum(jnp.ceil(jnp.log1p(-u) / jnp.log1p(-scalar(p, u.dtype))), 1)


def _bernoulli(ctx: Ctx, shape: Any, p: Any) -> Any:
    """1 with probability ``p``; 32 random bits are drawn for each, whatever the dtype."""
    return _uniform(ctx, shape, jnp.float32) < scalar(p, jnp.float32)


@lower("aten.native_dropout.default", random=True)
def native_dropout(ctx: Ctx, input: Any, p: Any, train: bool | None = None) -> Any:
    if train is False:
        return input, jnp.ones(input.shape, bool)
    mask = _bernoulli(ctx, input.shape, 1 - jnp.asarray(p, jnp.float32))
    x = wide(input)
    p = scalar(p, x.dtype)
    return jnp.where(mask, x / (1 - jnp.where(p == 1, 0, p)), 0), mask


@lower("aten.native_dropout_backward.default")
def native_dropout_backward(ctx: Ctx, grad_output: Any, mask: Any, scale: Any) -> Any:
    grad = grad_output.astype(opmath_dtype(ctx.out[0].jax))
    return jnp.where(mask, grad * scalar(scale, grad.dtype), 0)


@lower(*overloads("randint_like.low_dtype randint_like.low_generator_dtype"), random=True)
@lower(*overloads("random random_ random.from random_.from"), random=True)
def randint_like_low(ctx: Ctx, self: Any, low: int = 0, high: int | None = None, **kwargs: Any) -> Any:
    return _integers(ctx, low, _largest(self.dtype) + 1 if high is None else high)


def _largest(dtype: Any) -> int:
    """The largest integer ``random_`` gives: all of an integer dtype's, or those a float holds exactly."""
    if dtype == jnp.bool_:
        return 1
    if jnp.issubdtype(dtype, jnp.integer):
        return int(iinfo(dtype).max)
    return int(2 ** (finfo(dtype).nmant + 1))


def _integers(ctx: Ctx, low: Any, high: Any) -> Any:
    """Uniform integers in [low, high)."""
    if isinstance(high, int) and high > iinfo(jnp.int64).max:
        # jax wants the exclusive end to be an int64 itself; the top value is then drawn with the rest.
        bits = jax.random.bits(ctx.key, ctx.out[0].shape, jnp.uint64)
        if high - low == 1 << 64:
            return jax.lax.bitcast_convert_type(bits, jnp.int64)
        return (bits % jnp.uint64(high - low)).astype(jnp.int64) + low
    return jax.random.randint(ctx.key, ctx.out[0].shape, low, high, jnp.int64)


@lower("aten.multinomial.default", random=True)
def multinomial(ctx: Ctx, self: Any, num_samples: int, replacement: bool = False, generator: Any = None) -> Any:
    logits = jnp.log(wide(self))
    if replacement:
        drawn = jax.random.categorical(ctx.key, logits, -1, shape=(num_samples, *self.shape[:-1]))
        return jnp.moveaxis(drawn, 0, -1)
    # The largest of independent Gumbel variables, then the second largest...: sampling without replacement.
    noise = jax.random.gumbel(ctx.key, logits.shape, logits.dtype)
    return jax.lax.top_k(logits + noise, num_samples)[1]


@lower("aten.binomial.default", random=True)
def binomial(ctx: Ctx, count: Any, prob: Any, generator: Any = None) -> Any:
    if count.dtype != prob.dtype:
        raise Unsupported("binomial of counts and probabilities of different dtypes")
    return jax.random.binomial(ctx.key, wide(count), wide(prob), ctx.out[0].shape, opmath_dtype(count.dtype))


@lower("aten._standard_gamma.default", random=True)
def standard_gamma(ctx: Ctx, self: Any, generator: Any = None) -> Any:
    # Never 0, as in PyTorch: users take logarithms of these, and divide by them.
    draw = jax.random.gamma(ctx.key, wide(self))
    return jnp.maximum(draw, finfo(self.dtype).tiny)


@lower("aten._standard_gamma_grad.default")
def standard_gamma_grad(ctx: Ctx, self: Any, output: Any) -> Any:
    """How a draw (``output``) moves with its shape parameter (``self``), its quantile held."""
    return jax.lax.random_gamma_grad(wide(self), wide(output))


@lower("aten.rrelu_with_noise_functional.default", random=True)
def rrelu(
    ctx: Ctx, self: Any, noise: Any, low: Any = 0.125, high: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    x = wide(self)
    low, high = scalar(low, x.dtype), scalar(high, x.dtype)
    if not training:
        return jnp.where(x > 0, x, x * (low + high) / 2), noise
    slope = jnp.where(x > 0, 1, _uniform(ctx, x.shape, x.dtype) * (high - low) + low)
    return x * slope, slope


_DRAWS: dict[str, Lowering] = {
    "randn randn.generator randn_like randn_like.generator": lambda ctx, *args, **kwargs: _out_normal(ctx),
    "normal_functional normal_": lambda ctx, x, mean=0.0, std=1.0, generator=None: _scaled(_out_normal(ctx), mean, std),
    "normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor normal.float_float": (
        lambda ctx, mean, std=1.0, size=None, **kwargs: _scaled(_out_normal(ctx), mean, std)
    ),
    "log_normal log_normal_": lambda ctx, x, mean=1.0, std=2.0, generator=None: jnp.exp(
        _scaled(_out_normal(ctx), mean, std)
    ),
    "cauchy cauchy_": lambda ctx, x, median=0.0, sigma=1.0, generator=None: _scaled(
        jax.random.cauchy(ctx.key, x.shape, opmath_dtype(x.dtype)), median, sigma
    ),
    "bernoulli": lambda ctx, probability, generator=None: _bernoulli(ctx, probability.shape, probability),
    "bernoulli.p bernoulli_.float bernoulli.Tensor bernoulli_.Tensor": (
        lambda ctx, x, p=0.5, generator=None: _bernoulli(ctx, x.shape, p)
    ),
    "poisson": lambda ctx, rate, generator=None: jax.random.poisson(ctx.key, wide(rate), rate.shape, jnp.int64),
    "_sample_dirichlet": lambda ctx, alpha, generator=None: jax.random.dirichlet(
        ctx.key, wide(alpha), dtype=wide(alpha).dtype
    ),
    "randint randint.generator randint.low randint.low_generator": lambda ctx, *bounds_and_size, **kwargs: _integers(
        ctx, *(0, *bounds_and_size[:-1])[-2:]
    ),
    "randint_like randint_like.generator randint_like.Tensor random.to random_.to": (
        lambda ctx, x, high, **kwargs: _integers(ctx, 0, high)
    ),
    "randperm randperm.generator": lambda ctx, n, **kwargs: jax.random.permutation(ctx.key, n),
}
for _names, _draw in _DRAWS.items():
    lower(*overloads(_names), random=True)(_draw)
