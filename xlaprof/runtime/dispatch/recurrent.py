"""LSTMs, GRUs and RNNs: two operators per layer (forward, backward) instead of a dozen per step.

PyTorch composes them for devices without kernels of their own, and so does PyTorch/XLA: sixty steps of a layer are a
graph of thousands of operations, which takes XLA half a minute to compile. The composition is still taken where a
layer is more than its gates (projections, packed sequences), where something else than a tensor of the device looks
on (``torch.func``, autocast, tracing), for gradients of gradients, and in strict parity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xlaprof.runtime import parity
from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.tensor import XLATensor

from .handlers import SPECIAL, general
from .types import Handler

aten = torch.ops.aten
_aten = torch.library.Library("aten", "IMPL")
_library = torch.library.Library("xla", "FRAGMENT")

_LAYER = "Tensor x, Tensor h, Tensor? c, Tensor w_x, Tensor w_h, Tensor? b_x, Tensor? b_h, bool backwards"
_library.define(f"recurrent_layer(str kind, {_LAYER}) -> (Tensor, Tensor)")
_library.define(
    f"recurrent_layer_backward(str kind, Tensor grad_hs, Tensor grad_cs, Tensor hs, Tensor cs, {_LAYER}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

Tensor = torch.Tensor
MaybeTensor = torch.Tensor | None


def _shapes(kind: str, x: Tensor, h: Tensor, c: MaybeTensor, *_: Any) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0], *h.shape)
    return x.new_empty(shape), x.new_empty((0,) if c is None else shape)


def _backward_shapes(
    kind: str, grad_hs: Tensor, grad_cs: Tensor, hs: Tensor, cs: Tensor, *layer: Any
) -> tuple[Tensor, ...]:
    none = hs.new_empty((0,))
    return tuple(none if t is None else torch.empty_like(t) for t in layer[:-1])


_library.impl("recurrent_layer", _shapes, "Meta")
_library.impl("recurrent_layer_backward", _backward_shapes, "Meta")
for _op in (torch.ops.xla.recurrent_layer.default, torch.ops.xla.recurrent_layer_backward.default):
    SPECIAL[str(_op)] = general(Op(_op))


class Layer(torch.autograd.Function):
    """A layer in one direction."""

    @staticmethod
    def forward(ctx: Any, kind: str, backwards: bool, *layer: MaybeTensor) -> tuple[Tensor, Tensor]:
        hs, cs = torch.ops.xla.recurrent_layer(kind, *layer, backwards)
        ctx.kind, ctx.backwards = kind, backwards
        ctx.save_for_backward(hs, cs, *layer)
        return hs, cs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        hs, cs, *layer = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, *_differentiable(ctx.kind, ctx.backwards, grads, layer)
        found = torch.ops.xla.recurrent_layer_backward(ctx.kind, *grads, hs, cs, *layer, ctx.backwards)
        wanted = ctx.needs_input_grad[2:]
        return None, None, *(grad if want else None for grad, want in zip(found, wanted, strict=True))


apply: Callable[..., tuple[Tensor, Tensor]] = Layer.apply


def _differentiable(kind: str, backwards: bool, grads: Sequence[Tensor], layer: Sequence[Any]) -> Any:
    """The gradients by PyTorch's composition, which has gradients of its own."""
    x, h, c, *weights = layer
    given = [w for w in weights if w is not None]
    steps = x.flip(0) if backwards else x
    states = [t.unsqueeze(0) for t in (h, c) if t is not None]
    op = getattr(aten, kind).input
    hs, *last = op.decompose(
        steps, states if kind == "lstm" else states[0], given, len(given) > 2, 1, 0.0, False, False, False
    )
    outputs, of_outputs = [hs.flip(0) if backwards else hs], [grads[0]]
    if kind == "lstm":
        outputs.append(last[1][0])
        of_outputs.append(grads[1][0 if backwards else -1])
    wanted = [t for t in layer if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, of_outputs, create_graph=True, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in layer]


def _composed(kind: str) -> Any:
    """The kernel of ``aten::lstm.input`` and its like."""
    op = getattr(aten, kind).input
    is_lstm = kind == "lstm"

    def run(
        x: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        states = list(hx) if is_lstm else [hx]
        directions = 1 + bidirectional
        if not _serves(kind, x, states, params, has_biases, num_layers * directions, batch_first):
            return op.decompose(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        each = 2 + 2 * has_biases
        values = x.transpose(0, 1) if batch_first else x
        last: list[list[Tensor]] = [[] for _ in states]
        for i in range(num_layers):
            shown = []
            for backwards in range(directions):
                at = i * directions + backwards
                w_x, w_h, *biases = params[each * at : each * (at + 1)]
                h, c = states[0][at], states[1][at] if is_lstm else None
                hs, cs = apply(kind, bool(backwards), values, h, c, w_x, w_h, *(biases or (None, None)))
                shown.append(hs)
                for ends, sequence in zip(last, (hs, cs), strict=False):
                    ends.append(sequence[0 if backwards else -1])
            values = torch.cat(shown, -1) if bidirectional else shown[0]
            if dropout and train and i < num_layers - 1:
                values = torch.dropout(values, dropout, train)
        return values.transpose(0, 1) if batch_first else values, *(torch.stack(ends) for ends in last)

    return run


def _serves(
    kind: str,
    x: Tensor,
    states: list[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    batch_first: bool,
) -> bool:
    """Are these layers of gates alone, over tensors of the device of fitting shapes?"""
    tensors = [x, *states, *params]
    if (
        parity.strict
        or any(not isinstance(t, XLATensor) or t.device != x.device for t in tensors)
        or any(t.dtype is not x.dtype or not t.is_floating_point() for t in tensors)
        or torch.is_autocast_enabled("xla")
        or torch._C._functorch.peek_interpreter_stack() is not None
        or x.dim() != 3
        or not x.numel()
        or len(params) != layers * (2 + 2 * has_biases)
        or any(h.shape != (layers, x.shape[not batch_first], params[1].shape[-1]) for h in states)
    ):
        return False
    size = params[1].shape[-1]
    gates = _GATES[kind] * size
    return all(w.shape[0] == gates for w in params) and params[0].shape == (gates, x.shape[2])


def install() -> None:
    """Take the place of PyTorch's composition for tensors on the device."""
    for kind in _GATES:
        run = _composed(kind)
        _aten.impl(f"{kind}.input", run, "AutogradXLA")
        SPECIAL[f"aten.{kind}.input"] = _without_autograd(run)  # in inference mode


def _without_autograd(run: Any) -> Handler:
    return lambda args, kwargs: run(*args, **kwargs)
