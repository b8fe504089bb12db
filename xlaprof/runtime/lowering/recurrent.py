"""A layer of an LSTM, a GRU or an RNN over all its steps, and its gradients: a loop on the device.

PyTorch composes them of a few operations per step; XLA then compiles as many as the sequence is long. Gates have
PyTorch's order (``torch.nn.LSTM``, ``torch.nn.GRU``), arrays its shapes: ``x`` is ``(steps, N, inputs)``, ``h`` and
``c`` are ``(N, H)``, weights ``(gates * H, inputs)`` and ``(gates * H, H)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .registry import Array, Ctx, MaybeArray, lower

#: (gates of the input, gates of the state, h, c) -> (h, c)
Cell = Callable[[Array, Array, Array, MaybeArray], tuple[Array, MaybeArray]]

_product = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


def _lstm(of_x: Array, of_h: Array, h: Array, c: MaybeArray) -> tuple[Array, MaybeArray]:
    assert c is not None
    keep, forget, new, out = jnp.split(of_x + of_h, 4, axis=-1)
    c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(keep) * jnp.tanh(new)
    return jax.nn.sigmoid(out) * jnp.tanh(c), c


def _gru(of_x: Array, of_h: Array, h: Array, c: MaybeArray) -> tuple[Array, MaybeArray]:
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = jnp.split(of_x, 3, axis=-1), jnp.split(of_h, 3, axis=-1)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (h - new) * jax.nn.sigmoid(update_x + update_h) + new, None


CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda of_x, of_h, h, c: (jnp.tanh(of_x + of_h), None),
    "rnn_relu": lambda of_x, of_h, h, c: (jax.nn.relu(of_x + of_h), None),
}


def _gates(x: Array, weight: Array, bias: MaybeArray) -> Array:
    gates = _product("...i,gi->...g", x, weight)
    return gates if bias is None else gates + bias


@lower("xla.recurrent_layer.default")
def layer(
    ctx: Ctx,
    kind: str,
    x: Array,
    h: Array,
    c: MaybeArray,
    w_x: Array,
    w_h: Array,
    b_x: MaybeArray,
    b_h: MaybeArray,
    backwards: bool,
) -> tuple[Array, Array]:
    """``h`` and ``c`` after each step, ``(steps, N, H)``: an empty ``c`` for other kinds than an LSTM.

    ``backwards``: from the last step on.
    """
    cell = CELLS[kind]

    def step(state: tuple[Array, MaybeArray], of_x: Array) -> Any:
        state = cell(of_x, _gates(state[0], w_h, b_h), *state)
        return state, state

    _, (hs, cs) = lax.scan(step, (h, c), _gates(x, w_x, b_x), reverse=backwards)
    return hs, jnp.zeros((0,), x.dtype) if cs is None else cs


@lower("xla.recurrent_layer_backward.default")
def layer_backward(
    ctx: Ctx,
    kind: str,
    grad_hs: Array,
    grad_cs: Array,
    hs: Array,
    cs: Array,
    x: Array,
    h: Array,
    c: MaybeArray,
    w_x: Array,
    w_h: Array,
    b_x: MaybeArray,
    b_h: MaybeArray,
    backwards: bool,
) -> tuple[Array, ...]:
    """The gradients of :func:`layer` in ``x``, ``h``, ``c``, both weights and both biases."""

    def before(first: Array, states: Array) -> Array:
        return jnp.concatenate([states[1:], first[None]] if backwards else [first[None], states[:-1]])

    has_c = c is not None
    h_before = before(h, hs)
    given = (
        _gates(x, w_x, b_x),
        _gates(h_before, w_h, b_h),
        h_before,
        before(c, cs) if c is not None else None,
        grad_hs,
        grad_cs if has_c else None,
    )

    def step(grads: tuple[Array, MaybeArray], given: Any) -> Any:
        *arguments, of_h, of_c = given
        _, pull = jax.vjp(CELLS[kind], *arguments)
        of_state = (of_h + grads[0], of_c + grads[1] if has_c else None)
        of_x_gates, of_h_gates, of_h, of_c = pull(of_state)
        return (of_h + _product("ng,gh->nh", of_h_gates, w_h), of_c), (of_x_gates, of_h_gates)

    start = jnp.zeros_like(h), jnp.zeros_like(h) if has_c else None
    (of_h, of_c), (of_x_gates, of_h_gates) = lax.scan(step, start, given, reverse=not backwards)
    none = jnp.zeros((0,), x.dtype)
    return (
        _product("tng,gi->tni", of_x_gates, w_x),
        of_h,
        none if of_c is None else of_c,
        _product("tng,tni->gi", of_x_gates, x),
        _product("tng,tnh->gh", of_h_gates, h_before),
        none if b_x is None else of_x_gates.sum((0, 1)),
        none if b_h is None else of_h_gates.sum((0, 1)),
    )
