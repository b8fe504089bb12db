"""Lazy modules (``LazyLinear``, ``LazyConv2d``...): on the host until their first call shows their shapes.

PyTorch turns an uninitialized parameter into a real one in place, which it cannot do across tensor implementations. So
parameters for ``xla`` are created and initialized on the host, and move in the first call, after their initialization.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from xlaprof.runtime.trace.tensor import XLATensor


def is_uninitialized(module: torch.nn.Module, fn: Any) -> bool:
    """Has ``module`` itself uninitialized parameters or buffers that ``fn`` would bring to ``xla``?"""
    own = (*module._parameters.values(), *module._buffers.values())
    lazy = any(tensor is not None and is_lazy(tensor) for tensor in own)
    return lazy and isinstance(fn(torch.empty(0)), XLATensor)


def move_later(module: torch.nn.Module, fn: Any) -> None:
    """Apply ``fn`` to ``module``'s own tensors in its first call, which initializes them first."""

    def move(module: torch.nn.Module, args: Any) -> None:
        hook.remove()
        module._apply(fn, recurse=False)

    # runs after the hook that initialises, which the module registered when it was made
    hook = module.register_forward_pre_hook(move)


def _made_on_host(original: Any, trained: bool) -> Any:
    def new(cls: Any, requires_grad: bool = trained, device: Any = None, dtype: Any = None, **rest: Any) -> Any:
        sample = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(sample, XLATensor):
            return original(cls, requires_grad, device, dtype, **rest)
        made = original(cls, requires_grad, torch.device("cpu"), sample.dtype, **rest)
        made._target_device = sample.device
        return made

    return new


def _inferred(original: Any) -> Any:
    @functools.wraps(original)
    def infer(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = original(self, module, *args, **kwargs)
        own = (*module._parameters.values(), *module._buffers.values())
        device = next(filter(None, (getattr(tensor, "_target_device", None) for tensor in own)), None)
        if device is not None:
            module._apply(lambda tensor: tensor.to(device), recurse=False)
        return result

    return infer


def install() -> None:
    """Make ``LazyLinear(3, device="xla")`` and its relatives work.

    Not by hooks on the registration of parameters and buffers: Dynamo would trace them wherever a compiled function
    assigns a buffer, and break the graph.
    """
    UninitializedParameter.__new__ = _made_on_host(UninitializedParameter.__new__, True)  # type: ignore[method-assign]
    UninitializedBuffer.__new__ = _made_on_host(UninitializedBuffer.__new__, False)  # type: ignore[method-assign]
    LazyModuleMixin._infer_parameters = _inferred(LazyModuleMixin._infer_parameters)  # type: ignore[method-assign]
