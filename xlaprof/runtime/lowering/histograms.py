"""Histograms of one and several dimensions. Bins hold their lower edge; the last one its upper edge too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from .registry import Array, Ints, MaybeArray, direct_table

Range = Sequence[float] | None


def _edges(x: Array, bins: Ints, range: Range) -> list[Array]:
    """The bins' edges along each column of ``x`` [n, dims]: from ``range``, or the smallest to the largest value."""
    result = []
    for d, n in enumerate(bins):
        if range:
            low, high = jnp.asarray(range[2 * d], x.dtype), jnp.asarray(range[2 * d + 1], x.dtype)
        elif x.shape[0]:
            low, high = x[:, d].min(), x[:, d].max()
        else:
            low, high = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
        flat = low == high
        low, high = jnp.where(flat, low - 0.5, low), jnp.where(flat, high + 0.5, high)
        # counted from both ends, as torch.linspace does
        step, place = (high - low) / n, jnp.arange(n + 1, dtype=x.dtype)
        result.append(jnp.where(place < (n + 1) // 2, low + step * place, high - step * (n - place)))
    return result


def _count(x: Array, edges: Sequence[Array], weight: MaybeArray = None, density: bool = False) -> Array:
    shape = tuple(e.shape[0] - 1 for e in edges)
    counted = jnp.ones(x.shape[0], x.dtype) if weight is None else weight.reshape(-1).astype(x.dtype)
    inside = jnp.ones(x.shape[0], jnp.bool_)
    place = []
    for d, e in enumerate(edges):
        column = x[:, d]
        inside &= (column >= e[0]) & (column <= e[-1])
        found = jnp.searchsorted(e, column, side="right") - 1
        place.append(jnp.minimum(found, shape[d] - 1))
    hist = jnp.zeros(shape, x.dtype).at[tuple(place)].add(jnp.where(inside, counted, 0), mode="drop")
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / jnp.diff(e).reshape([-1 if i == d else 1 for i, _ in enumerate(shape)])
    return hist


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _histogram(x: Array, bins: int = 100, *, range: Range = None, **options: Any) -> tuple[Array, Array]:
    x = x.reshape(-1, 1)
    edges = _edges(x, (bins,), range)
    return _count(x, edges, **options), edges[0]


def _histogramdd(x: Array, bins: Ints, *, range: Range = None, **options: Any) -> Array:
    return _count(_rows(x), _edges(_rows(x), bins, range), **options)


direct_table(
    {
        "histogram.bin_ct": _histogram,
        "histogram.bins_tensor": lambda x, bins, **options: (_count(x.reshape(-1, 1), [bins], **options), bins),
        "_histogramdd_bin_edges": lambda x, bins, *, range=None, **_: tuple(_edges(_rows(x), bins, range)),
        "_histogramdd_from_bin_cts": _histogramdd,
        "_histogramdd_from_bin_tensors": lambda x, bins, **options: _count(_rows(x), bins, **options),
    }
)
