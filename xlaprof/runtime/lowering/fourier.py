"""Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from .registry import Ctx, lower, normalize_dims

#: PyTorch's ``fft_norm_mode``: nothing, 1/sqrt(n), 1/n
_UNSCALED, _BY_ROOT, _BY_SIZE = 0, 1, 2


def _scaled(x: Any, size: int, normalization: int) -> Any:
    if normalization == _UNSCALED:
        return x
    return x / (math.sqrt(size) if normalization == _BY_ROOT else size)


@lower("aten._fft_c2c.default")
def c2c(ctx: Ctx, self: Any, dim: Any, normalization: int, forward: bool) -> Any:
    dims = normalize_dims(dim, self.ndim) if dim else ()
    size = math.prod(self.shape[d] for d in dims)
    if forward:
        return _scaled(jnp.fft.fftn(self, axes=dims), size, normalization)
    return _scaled(jnp.fft.ifftn(self, axes=dims, norm="forward"), size, normalization)


@lower("aten._fft_r2c.default")
def r2c(ctx: Ctx, self: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    dims = normalize_dims(dim, self.ndim)
    size = math.prod(self.shape[d] for d in dims)
    spectrum = jnp.fft.rfftn(self, axes=dims) if onesided else jnp.fft.fftn(self, axes=dims)
    return _scaled(spectrum, size, normalization)


@lower("aten._fft_c2r.default")
def c2r(ctx: Ctx, self: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    dims = normalize_dims(dim, self.ndim)
    sizes = [*(self.shape[d] for d in dims[:-1]), last_dim_size]
    return _scaled(jnp.fft.irfftn(self, sizes, dims, norm="forward"), math.prod(sizes), normalization)
