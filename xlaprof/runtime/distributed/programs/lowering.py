"""Lowerings of collectives in a program over all ranks, to jax's collectives over the axis :data:`~.placement.AXIS`.

A function's name is its operator's. Values are this rank's; ``groups`` are ranks, which
:func:`.placement.axis_groups` maps to positions on the program's mesh. Small tensors of one call share an exchange:
the number of exchanges is what costs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from xlaprof.runtime.distributed.groups import Groups, from_text
from xlaprof.runtime.lowering.registry import Ctx

from .placement import AXIS, axis_groups, current, position

#: tensors up to this many bytes of one call are joined to one exchange
JOINED = 1 << 18

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def all_reduce(ctx: Ctx, inputs: Sequence[Any], kind: str, scale: float, groups: str) -> list[Any]:
    """Every rank gets the values of all, reduced elementwise, times ``scale``."""
    named = from_text(groups)
    return [_scaled(x, scale) for x in _joined(inputs, lambda x: _reduce(x, kind, named))]


def reduce_scatter(
    ctx: Ctx, inputs: Sequence[Any], kind: str, scale: float, dim: int, shards: int, groups: str
) -> list[Any]:
    """As :func:`all_reduce`, but every rank gets only its slice along ``dim``."""
    named = from_text(groups)
    members = axis_groups(named, equal=True)

    def one(x: Any) -> Any:
        if kind == "sum" and x.dtype != jnp.bool_ and not jnp.issubdtype(x.dtype, jnp.complexfloating):
            return _exchange(
                x,
                lambda x: lax.psum_scatter(x, AXIS, scatter_dimension=dim, axis_index_groups=members, tiled=True),
            )
        size = x.shape[dim] // shards
        return lax.dynamic_slice_in_dim(_reduce(x, kind, named), position(named) * size, size, dim)

    return [_scaled(one(x), scale) for x in inputs]


def all_gather(ctx: Ctx, inputs: Sequence[Any], dim: int, shards: int, groups: str) -> list[Any]:
    """Every rank gets the values of all, in order of rank along ``dim``."""
    members = axis_groups(from_text(groups), equal=True)
    return [
        _bitwise(x, lambda x: lax.all_gather(x, AXIS, axis=dim, axis_index_groups=members, tiled=True)) for x in inputs
    ]


def all_to_all(ctx: Ctx, inputs: Sequence[Any], split: int, concat: int, shards: int, groups: str) -> Any:
    """The i-th part along ``split`` goes to rank i, which joins the parts it receives along ``concat``."""
    (x,) = inputs
    members = axis_groups(from_text(groups), equal=True)
    return _bitwise(x, lambda x: lax.all_to_all(x, AXIS, split, concat, axis_index_groups=members, tiled=True))


def broadcast(ctx: Ctx, inputs: Sequence[Any], root: int, groups: str) -> list[Any]:
    """Every rank gets the values of rank ``root``, or of the member of its own group at the position of ``root``."""
    named = from_text(groups)
    members = axis_groups(named)
    place = next((group.index(root) for group in named if root in group), root)
    chosen = position(named) == place

    def one(bits: Any) -> Any:  # a sum in which all but one rank's bits are zero: exact for every value
        mine = jnp.where(chosen, bits, jnp.zeros_like(bits))
        return _exchange(mine, lambda x: lax.psum(x, AXIS, axis_index_groups=members))

    sent = _joined([_to_bits(x) for x in inputs], one)
    return [_from_bits(bits, x.dtype) for bits, x in zip(sent, inputs, strict=True)]


def collective_permute(ctx: Ctx, inputs: Sequence[Any], pairs: str, groups: str) -> list[Any]:
    """The value of the first rank of each pair goes to the second; other ranks get zeros."""
    ranks = current().ranks
    named = [(ranks.index(a), ranks.index(b)) for a, b in from_text(pairs)]
    return [_bitwise(x, lambda x: lax.ppermute(x, AXIS, named)) for x in inputs]


# -- reductions ---------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[..., Any]] = {"mul": jnp.multiply, "and": jnp.bitwise_and, "or": jnp.bitwise_or}


def _reduce(x: Any, kind: str, groups: Groups) -> Any:
    if x.dtype == jnp.bool_:
        least = kind in ("mul", "and", "min")
        return _reduce(x.astype(jnp.uint8), "min" if least else "max", groups).astype(jnp.bool_)
    if kind == "sum" and jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(_reduce(x.real, kind, groups), _reduce(x.imag, kind, groups))
    reduce: Any = {"sum": lax.psum, "min": lax.pmin, "max": lax.pmax}.get(kind)
    if reduce is not None:
        members = axis_groups(groups)
        return _exchange(x, lambda x: reduce(x, AXIS, axis_index_groups=members))
    members = axis_groups(groups, equal=True)
    parts = _bitwise(x[None], lambda x: lax.all_gather(x, AXIS, axis_index_groups=members, tiled=True))
    return functools.reduce(_COMBINE[kind], list(parts))


def _scaled(x: Any, scale: float) -> Any:
    return x if scale == 1.0 else x * jnp.asarray(scale, x.dtype)


# -- how values travel --------------------------------------------------------------------------------


def _exchange(x: Any, move: Callable[[Any], Any]) -> Any:
    """``move(x)``, an exchange between ranks that XLA may neither drop nor move (:class:`~.placement.Tracing`)."""
    tracing = current()
    if tracing.varies:
        zero = (tracing.witness >> 16) >> 16
        x = _from_bits(_to_bits(x) ^ zero.astype(_bits_of(x.dtype)), x.dtype)
    x, tracing.witness = lax.optimization_barrier((x, tracing.witness))
    moved, tracing.witness = lax.optimization_barrier((move(x), tracing.witness))
    if moved.size:
        first = _to_bits(lax.slice(moved, (0,) * moved.ndim, (1,) * moved.ndim)).reshape(-1)[0]
        tracing.witness += first.astype(jnp.uint32)
    return moved


def _bits_of(dtype: Any) -> Any:
    if dtype == jnp.bool_:
        return jnp.uint8
    return _BITS[dtype.itemsize // (2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1)]


def _to_bits(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag], -1)
    return x.astype(jnp.uint8) if x.dtype == jnp.bool_ else lax.bitcast_convert_type(x, _bits_of(x.dtype))


def _from_bits(bits: Any, dtype: Any) -> Any:
    if dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        parts = lax.bitcast_convert_type(bits, jnp.float32 if dtype == jnp.complex64 else jnp.float64)
        return lax.complex(parts[..., 0], parts[..., 1])
    return lax.bitcast_convert_type(bits, dtype)


def _bitwise(x: Any, move: Callable[[Any], Any]) -> Any:
    """``move``, which only moves elements, applied to what every backend can carry."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating) or x.dtype == jnp.bool_:
        return _from_bits(_exchange(_to_bits(x), move), x.dtype)
    return _exchange(x, move)


def _joined(inputs: Sequence[Any], exchange: Callable[[Any], Any]) -> list[Any]:
    """``exchange``, which is elementwise, of each input; small ones of one dtype together."""
    results: list[Any] = [None] * len(inputs)
    small: dict[Any, list[int]] = {}
    for i, x in enumerate(inputs):
        if x.size * x.dtype.itemsize <= JOINED:
            small.setdefault(x.dtype, []).append(i)
        else:
            results[i] = exchange(x)
    for together in small.values():
        if len(together) == 1:
            results[together[0]] = exchange(inputs[together[0]])
            continue
        parts = exchange(jnp.concatenate([inputs[i].reshape(-1) for i in together]))
        at = 0
        for i in together:
            results[i] = lax.slice(parts, (at,), (at + inputs[i].size,)).reshape(inputs[i].shape)
            at += inputs[i].size
    return results
