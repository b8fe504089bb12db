"""Views made functional: reading through each view operator, and writing through a chain of them to the base.

A read records the view operator itself. A write records the inverse of each view operator, innermost first. Operators
that only rearrange (``t``, ``view``, ``unsqueeze``...) have an inverse that does not need the base; slices and
diagonals update a part of it. For all others the view operator is applied to the numbers of the base's elements, which
gives the place of each new value. Where a view shows one element of its base several times, the last value written
stays, as in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xlaprof.runtime.lowering.pieces import diagonal_scatter, select_scatter, slice_scatter
from xlaprof.runtime.lowering.registry import JAX_DTYPE, Ctx, direct_table, lower, normalize_dims, overloads

from .grow import Pseudo

if TYPE_CHECKING:
    from xlaprof.runtime.trace.storage import Sig
    from xlaprof.runtime.trace.trie import Node

# -- reading: one lowering per view operator ----------------------------------------------------------


_RESHAPES = "view _reshape_alias unflatten.int unsqueeze squeeze squeeze.dim squeeze.dims"


@lower(*overloads(f"{_RESHAPES} view_as _reshape_copy view_copy _unsafe_view"))
def reshaped(ctx: Ctx, self: Any, *size: Any) -> Any:
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


def _complex(x: Any) -> Any:
    return jax.lax.complex(x[..., 0], x[..., 1])


def _real(x: Any) -> Any:
    return jnp.stack([x.real, x.imag], -1)


def _transpose(x: Any, dim0: int, dim1: int) -> Any:
    return jnp.swapaxes(x, dim0, dim1) if x.ndim else x


def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    index = [slice(None)] * x.ndim
    index[dim] = slice(*slice(start, end, step).indices(x.shape[dim]))
    return x[tuple(index)]


direct_table(
    {
        "alias detach": lambda x: x,
        "_conj": lambda x: jnp.conj(x),
        "_neg_view": lambda x: -x,
        "view_as_real": _real,
        "view_as_complex": _complex,
        "t": lambda x: x.T,
        "transpose.int": _transpose,
        "permute": lambda x, dims: jnp.transpose(x, dims),
        "select.int": lambda x, dim, index: jax.lax.index_in_dim(x, index, dim, keepdims=False),
        "slice.Tensor": _slice,
        "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    }
)


@lower("aten.expand.default")
def expand(ctx: Ctx, self: Any, size: Any, *, implicit: bool = False) -> Any:
    return jnp.broadcast_to(self, ctx.out[0].shape)


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


# -- writing ------------------------------------------------------------------------------------------

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


def _permute_back(base: Any, value: Any, dims: Any) -> Any:
    inverse = np.argsort(normalize_dims(dims, base.ndim)) if base.ndim else ()
    return jnp.transpose(value, tuple(int(d) for d in inverse))


def _write_expanded(base: Any, value: Any, size: Any, *, implicit: bool = False) -> Any:
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


#: view operator -> (base, value, the view's arguments) -> the new base, without the base's old value
_INVERSES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(overloads(f"{_RESHAPES} alias detach"), lambda base, value, *_, **__: value.reshape(base.shape)),
    "aten.t.default": lambda base, value: value.T,
    "aten.transpose.int": lambda base, value, *dims: _transpose(value, *dims),
    "aten.permute.default": _permute_back,
    "aten.view_as_real.default": lambda base, value: _complex(value),
    "aten.view_as_complex.default": lambda base, value: _real(value),
    "aten.view.dtype": lambda base, value, dtype: _reinterpret(value, base.dtype).reshape(base.shape),
    "aten._conj.default": lambda base, value: jnp.conj(value),
    "aten._neg_view.default": lambda base, value: -value,
}
#: those that show a part of the base, or all of it several times: they take the context as well, and return the base
_WRITES: dict[str, Callable[..., Any]] = {
    "aten.select.int": select_scatter,
    "aten.slice.Tensor": slice_scatter,
    "aten.diagonal.default": lambda ctx, *args, **kwargs: diagonal_scatter(*args, **kwargs),
    "aten.expand.default": lambda ctx, *args, **kwargs: _write_expanded(*args, **kwargs),
}


def _write_back(ctx: Ctx, base: Any, value: Any, step: Node) -> Any:
    """``base`` with ``value`` written through the view ``step``."""
    assert step.op is not None
    name, args = step.op.name, step.args[1:]
    if name in _INVERSES:
        return _INVERSES[name](base, value, *args, **step.kwargs)
    if value.size == 0:
        return base
    if name in _WRITES:
        return _WRITES[name](ctx, base, value, *args, **step.kwargs)
    # Apply the view operator to the numbers of the base's elements: they say where each element comes from.
    numbers = jnp.arange(base.size, dtype=jnp.int64).reshape(base.shape)
    shape = ctx._replace(out=(step.outs[0].aval,))
    places = step.op.lowering(shape, numbers, *args, **step.kwargs).reshape(-1)  # type: ignore[misc]
    if name not in _REPEATING:
        return base.reshape(-1).at[places].set(value.reshape(-1), unique_indices=True).reshape(base.shape)
    # The maximum does not depend on the order in which a device writes.
    last = jnp.full(base.size, -1, jnp.int64).at[places].max(jnp.arange(value.size, dtype=jnp.int64))
    return jnp.where(last < 0, base.reshape(-1), value.reshape(-1)[last]).reshape(base.shape)


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
