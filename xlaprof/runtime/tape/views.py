"""Views made functional: reading through each view operator, and writing through a chain of them to the base.

A read records the view operator itself. A write records the inverse of each view operator, innermost first. Operators
that only rearrange (``t``, ``view``, ``unsqueeze``...) have an inverse that does not need the base; slices and
diagonals update a part of it. For all others the view operator is applied to the numbers of the base's elements, which
gives the place of each new value. Where a view shows one element of its base several times, the last value written
stays, as in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xlaprof.runtime.lowering.registry import JAX_DTYPE, Ctx, lower, normalize_dims

from .grow import Pseudo

if TYPE_CHECKING:
    from xlaprof.runtime.trace.storage import Sig
    from xlaprof.runtime.trace.trie import Node

# -- reading: one lowering per view operator ----------------------------------------------------------


@lower("aten.alias.default", "aten.detach.default")
def identity(ctx: Ctx, self: Any) -> Any:
    return self


@lower("aten.view.default", "aten._reshape_alias.default", "aten.unflatten.int")
def view(ctx: Ctx, self: Any, size: Any, stride: Any = None) -> Any:
    return self.reshape(ctx.out[0].shape)


@lower("aten.view.dtype")
def view_dtype(ctx: Ctx, self: Any, dtype: Any) -> Any:
    return _reinterpret(self, JAX_DTYPE[dtype]).reshape(ctx.out[0].shape)


def _reinterpret(x: Any, dtype: Any) -> Any:
    """The bytes of ``x`` as ``dtype``: the last dimension grows or shrinks with the size of an element."""
    x = x.reshape(x.shape or (1,))
    if dtype == jnp.bool_:
        return _reinterpret(x, jnp.uint8) != 0
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    if jnp.iscomplexobj(x):
        x = jnp.stack([x.real, x.imag], -1).reshape(*x.shape[:-1], 2 * x.shape[-1])
    real = np.zeros((), dtype).real.dtype if jnp.issubdtype(dtype, jnp.complexfloating) else dtype
    old, new = jnp.dtype(x.dtype).itemsize, jnp.dtype(real).itemsize
    length = x.shape[-1] * old // new
    if old < new:
        x = x.reshape(*x.shape[:-1], length, new // old)
    x = jax.lax.bitcast_convert_type(x, real)
    if old > new:
        x = x.reshape(*x.shape[:-2], length)
    return x if real is dtype else jax.lax.complex(x[..., ::2], x[..., 1::2])


@lower("aten._conj.default")
def conj(ctx: Ctx, self: Any) -> Any:
    return jnp.conj(self)


@lower("aten._neg_view.default")
def neg_view(ctx: Ctx, self: Any) -> Any:
    return -self


@lower("aten.t.default")
def t(ctx: Ctx, self: Any) -> Any:
    return self.T


@lower("aten.transpose.int")
def transpose(ctx: Ctx, self: Any, dim0: int, dim1: int) -> Any:
    return jnp.swapaxes(self, dim0, dim1) if self.ndim else self


@lower("aten.permute.default")
def permute(ctx: Ctx, self: Any, dims: tuple[int, ...]) -> Any:
    return jnp.transpose(self, dims)


@lower("aten.expand.default")
def expand(ctx: Ctx, self: Any, size: Any, *, implicit: bool = False) -> Any:
    return jnp.broadcast_to(self, ctx.out[0].shape)


@lower(
    "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.view_as.default"
)
def reshape_to_out(ctx: Ctx, self: Any, *_: Any) -> Any:
    return self.reshape(ctx.out[0].shape)


@lower("aten.select.int")
def select(ctx: Ctx, self: Any, dim: int, index: int) -> Any:
    return jax.lax.index_in_dim(self, index, dim, keepdims=False)


@lower("aten.slice.Tensor")
def slice_(ctx: Ctx, self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    index = [slice(None)] * self.ndim
    index[dim] = slice(*slice(start, end, step).indices(self.shape[dim]))
    return self[tuple(index)]


@lower("aten.diagonal.default")
def diagonal(ctx: Ctx, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(self, offset, dim1, dim2)


@lower("aten.unfold.default")
def unfold(ctx: Ctx, self: Any, dimension: int, size: int, step: int) -> Any:
    if self.ndim == 0:
        return self.reshape(ctx.out[0].shape)
    (dim,) = normalize_dims(dimension, self.ndim)
    count = (self.shape[dim] - size) // step + 1
    windows = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    return jnp.moveaxis(jnp.take(self, windows, axis=dim), dim + 1, -1)


@lower("aten.as_strided.default")
def as_strided(ctx: Ctx, self: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    # The value of a storage is contiguous, so its elements in order are its storage.
    index = np.full((1,) * len(size), storage_offset or 0, np.int64)
    for dim, (n, s) in enumerate(zip(size, stride, strict=True)):
        index = index + (np.arange(n) * s).reshape([-1 if d == dim else 1 for d in range(len(size))])
    return jnp.take(self.reshape(-1), index.reshape(ctx.out[0].shape), axis=0)


@lower("aten.view_as_real.default")
def view_as_real(ctx: Ctx, self: Any) -> Any:
    return jnp.stack([self.real, self.imag], -1)


@lower("aten.view_as_complex.default")
def view_as_complex(ctx: Ctx, self: Any) -> Any:
    return jax.lax.complex(self[..., 0], self[..., 1])


# -- writing ------------------------------------------------------------------------------------------

_RESHAPES = {
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.alias.default",
    "aten.detach.default",
}


#: views of all of the base, with its dimensions in another order
_PERMUTING = {"aten.t.default", "aten.transpose.int", "aten.permute.default"}

#: views that may show an element of the base more than once
_REPEATING = {"aten.expand.default", "aten.unfold.default", "aten.as_strided.default"}


def undoes(step: Node, before: Node) -> bool:
    """Does the view operator of ``step``, applied to ``before``, undo it?

    A gradient of ``linear`` reaches its weight by two transpositions. Unlike a view, it then needs no computation when
    it is read after a barrier.
    """
    if step.op is not before.op or step.op is None or step.kwargs or before.kwargs:
        return False
    assert step.sig is not None
    name, rank = step.op.name, len(step.sig.shape)
    if name == "aten.t.default" or rank == 0:
        return name in _PERMUTING
    if name == "aten.transpose.int":
        return set(normalize_dims(step.args[1:], rank)) == set(normalize_dims(before.args[1:], rank))
    if name == "aten.permute.default":
        first, second = (normalize_dims(node.args[1], rank) for node in (before, step))
        return all(first[d] == i for i, d in enumerate(second))
    return False


def _write_back(ctx: Ctx, base: Any, value: Any, step: Node) -> Any:
    """``base`` with ``value`` written through the view ``step``."""
    assert step.op is not None
    name, args = step.op.name, step.args[1:]
    if name in _RESHAPES:
        return value.reshape(base.shape)
    if name == "aten.t.default":
        return value.T
    if name == "aten.transpose.int":
        return jnp.swapaxes(value, *args) if base.ndim else value
    if name == "aten.permute.default":
        inverse = np.argsort(normalize_dims(args[0], base.ndim)) if base.ndim else ()
        return jnp.transpose(value, tuple(int(d) for d in inverse))
    if name == "aten.view_as_real.default":
        return jax.lax.complex(value[..., 0], value[..., 1])
    if name == "aten.view_as_complex.default":
        return jnp.stack([value.real, value.imag], -1)
    if name == "aten.view.dtype":
        return _reinterpret(value, base.dtype).reshape(base.shape)
    if name == "aten._conj.default":
        return jnp.conj(value)
    if name == "aten._neg_view.default":
        return -value
    if value.size == 0:
        return base
    if name == "aten.select.int":
        dim, index = args
        return jax.lax.dynamic_update_index_in_dim(base, value, index % base.shape[dim], dim)
    if name == "aten.slice.Tensor":
        return _write_slice(base, value, *args, **step.kwargs)
    if name == "aten.diagonal.default":
        return _write_diagonal(base, value, *args, **step.kwargs)
    if name == "aten.expand.default":
        return _write_expanded(base, value)
    # Apply the view operator to the numbers of the base's elements: they say where each element comes from.
    numbers = jnp.arange(base.size, dtype=jnp.int64).reshape(base.shape)
    shape = ctx._replace(out=(step.outs[0].aval,))
    places = step.op.lowering(shape, numbers, *args, **step.kwargs).reshape(-1)  # type: ignore[misc]
    if name not in _REPEATING:
        return base.reshape(-1).at[places].set(value.reshape(-1), unique_indices=True).reshape(base.shape)
    # The maximum does not depend on the order in which a device writes.
    last = jnp.full(base.size, -1, jnp.int64).at[places].max(jnp.arange(value.size, dtype=jnp.int64))
    return jnp.where(last < 0, base.reshape(-1), value.reshape(-1)[last]).reshape(base.shape)


def _write_slice(
    base: Any, value: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    (dim,) = normalize_dims(dim, base.ndim)
    length = base.shape[dim]
    start, _, _ = slice(start, end, step).indices(length)
    if step == 1:
        return jax.lax.dynamic_update_slice_in_dim(base, value, start, dim)
    rest = length - start - ((value.shape[dim] - 1) * step + 1)
    spread = [(0, 0, 0)] * base.ndim
    spread[dim] = (start, rest, step - 1)
    written = np.zeros(length, np.bool_)
    written[start : length - rest : step] = True
    mask = written.reshape([-1 if d == dim else 1 for d in range(base.ndim)])
    return jnp.where(mask, jax.lax.pad(value, jnp.zeros((), value.dtype), spread), base)


def _write_diagonal(base: Any, value: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    numbers = np.arange(value.shape[-1])
    rows, columns = numbers + max(-offset, 0), numbers + max(offset, 0)
    last = jnp.moveaxis(base, (dim1, dim2), (-2, -1)).at[..., rows, columns].set(value, unique_indices=True)
    return jnp.moveaxis(last, (-2, -1), (dim1, dim2))


def _write_expanded(base: Any, value: Any) -> Any:
    # PyTorch writes only one number to an expanded tensor (fill_, masked_fill_...), and maybe not everywhere: elements
    # that have not changed were not written.
    new = value.ndim - base.ndim
    repeated = [d for d in range(value.ndim) if d < new or (base.shape[d - new] == 1 and value.shape[d] != 1)]
    ahead = jnp.moveaxis(value, repeated, range(len(repeated)))
    ahead = ahead.reshape(-1, *ahead.shape[len(repeated) :])
    before = base.reshape(ahead.shape[1:])
    changed = ahead != before
    last = ahead.shape[0] - 1 - jnp.argmax(changed[::-1], axis=0)
    written = jnp.take_along_axis(ahead, last[None], axis=0)[0]
    return jnp.where(changed.any(axis=0), written, before).reshape(base.shape)


class Scatter(Pseudo):
    """The inverse of one view operator with its arguments: ``(base, value) -> base``. One object per such step."""

    def __init__(self, step: Node) -> None:
        super().__init__(f"xlaprof.scatter:{step.op}")
        self.lowering = lambda ctx, base, value, *_, **__: _write_back(ctx, base, value, step)
        #: does the view show exactly the value written to it?
        self.exact = step.op is not None and step.op.name not in _REPEATING


_scatters: dict[Any, Scatter] = {}


def scatter_of(step: Node, base: Sig) -> Scatter:
    """The operation that writes through the view operator of ``step`` to a base of signature ``base``."""
    description = (step.key[0], base, step.sig, *step.key[2:])
    op = _scatters.get(description)
    if op is None:
        op = _scatters.setdefault(description, Scatter(step))
    return op
