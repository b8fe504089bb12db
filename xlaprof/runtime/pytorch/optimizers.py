"""What ``torch.optim`` asks of a device: ``fused=True``, and one graph from SGD's first step on.

For Adam, AdamW, SGD and Adagrad PyTorch has one operator that updates all parameters, and a list of devices that have
it; PyTorch/XLA is not on the list. Here the operator's arithmetic is recorded and compiled into the step's graph.
(Hugging Face's ``Trainer`` uses it by default.)

In its first step with momentum SGD makes each buffer a copy of the gradient, and from the second on it computes
``buffer * momentum + gradient``: two graphs. A buffer of zeros gives the same numbers by the second formula alone, so a
parameter gets one before its first update. With dampening the formulas differ: then it is as ever, as it is under
strict parity, where both graphs are compiled as in PyTorch/XLA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.optim.optimizer as _optimizer
from torch.optim import SGD

from xlaprof.runtime import parity
from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.tape import mode
from xlaprof.runtime.trace.tensor import XLATensor

Tensors = Sequence[torch.Tensor]


_optimizers: Any = _optimizer
_original: Callable[[], list[str]] = _optimizers._get_fused_kernels_supported_devices


def devices_with_fused() -> list[str]:
    """Device types that have fused optimizers. A constant to Dynamo, whose compiled steps call it too."""
    return [*_original(), "xla"]


def install() -> None:
    """Put ``xla`` on PyTorch's list of devices with fused optimizers, and have SGD begin with our momentum."""
    _optimizers._get_fused_kernels_supported_devices = devices_with_fused
    _class._init_group = _init_group  # SGD begins each step with it


def _update(
    parameters: Tensors, gradients: Tensors, *states: Tensors, options: dict[str, Any], step: Callable[..., Any]
) -> None:
    """Call ``step(p, gradient, *state)``, which writes, for each parameter; undo it where ``found_inf`` is set.

    ``grad_scale`` and ``found_inf``, of a ``GradScaler``, are among the ``options``.
    """
    scale, found = options.get("grad_scale"), options.get("found_inf")
    states = tuple(state for state in states if state)
    for p, given, *state in zip(parameters, gradients, *states, strict=True):
        gradient = given if scale is None else given / scale
        if scale is not None:
            given.copy_(gradient)  # as the operator leaves it
        if options["maximize"]:
            gradient = -gradient
        before = [t.clone() for t in (p, *state)] if found is not None else []
        step(p, gradient, *state)
        for tensor, old in zip((p, *state), before, strict=False):
            tensor.copy_(torch.where(found.view(()) != 0, old, tensor))  # type: ignore[union-attr]


def _adam(args: tuple[Any, ...], o: dict[str, Any], decoupled: bool) -> None:
    parameters, gradients, averages, squares, largest, steps = args
    decay, lr, beta1, beta2 = o["weight_decay"], o["lr"], o["beta1"], o["beta2"]

    def step(p: Any, gradient: Any, count: Any, average: Any, square: Any, most: Any = None) -> None:
        if decay and decoupled:
            p.mul_(1 - lr * decay)
        elif decay:
            gradient = gradient + p * decay
        average.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if most is not None:
            most.copy_(torch.maximum(most, square))
        root = (square if most is None else most).sqrt() / (1 - beta2**count).sqrt()
        p.sub_(lr / (1 - beta1**count) * (average / (root + o["eps"])))

    counts = [count.clone() for count in steps]  # the caller increments the originals
    _update(parameters, gradients, counts, averages, squares, largest, options=o, step=step)


special("aten._fused_adam_.default", "aten._fused_adam_.tensor_lr")(functools.partial(_adam, decoupled=False))
special("aten._fused_adamw_.default", "aten._fused_adamw_.tensor_lr")(functools.partial(_adam, decoupled=True))


@special("aten._fused_sgd_.default", "aten._fused_sgd_.tensor_lr")
def fused_sgd(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A step of SGD."""
    parameters, gradients, buffers = args
    momentum = kwargs["momentum"]

    def step(p: Any, gradient: Any, buffer: Any = None) -> None:
        if kwargs["weight_decay"]:
            gradient = gradient + p * kwargs["weight_decay"]
        if buffer is not None:
            if kwargs["is_first_step"]:
                buffer.copy_(gradient)
            else:
                buffer.mul_(momentum).add_(gradient * (1 - kwargs["dampening"]))
            gradient = gradient + buffer * momentum if kwargs["nesterov"] else buffer
        p.sub_(gradient * kwargs["lr"])

    _update(parameters, gradients, buffers, options=kwargs, step=step)


@special("aten._fused_adagrad_.default", "aten._fused_adagrad_.tensor_lr")
def fused_adagrad(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A step of Adagrad."""
    parameters, gradients, sums, steps = args

    def step(p: Any, gradient: Any, count: Any, total: Any) -> None:
        if kwargs["weight_decay"]:
            gradient = gradient + p * kwargs["weight_decay"]
        total.addcmul_(gradient, gradient)
        p.sub_(kwargs["lr"] / (1 + (count - 1) * kwargs["lr_decay"]) * (gradient / (total.sqrt() + kwargs["eps"])))

    counts = [count.clone() for count in steps]
    _update(parameters, gradients, counts, sums, options=kwargs, step=step)


# -- SGD's momentum -------------------------------------------------------------------------------------------

_class: Any = SGD
_sgd_init_group: Any = _class._init_group

#: optimizers whose buffers are all there -> how many parameters they had then
_ready: WeakKeyDictionary[SGD, int] = WeakKeyDictionary()


def _init_group(self: SGD, group: dict[str, Any], *lists: Any) -> Any:
    if group["momentum"] != 0 and group["dampening"] == 0 and type(self) is SGD:
        count = sum(len(one["params"]) for one in self.param_groups)
        if (_ready.get(self) != count or not self.state) and not (
            parity.strict or mode.run_recorded is not None or torch.compiler.is_compiling()
        ):
            _make_buffers(self, group["params"])
            if len(self.state) == count:
                _ready[self] = count
    return _sgd_init_group(self, group, *lists)


def _make_buffers(optimizer: SGD, parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, XLATensor) and gradient._storage.tape.partition is None:
            state = optimizer.state[parameter]
            if state.get("momentum_buffer") is None:
                with torch.no_grad():
                    state["momentum_buffer"] = torch.zeros_like(gradient)
