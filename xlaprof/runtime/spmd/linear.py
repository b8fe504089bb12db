"""Linear layers that do not flatten their input's dimensions, and barriers between modules' backward passes.

``nn.Linear`` over more than two dimensions flattens them into one, and with them the mesh axes that they are split
over; an einsum does not.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import jax.numpy as jnp
import torch
from torch.amp import custom_bwd, custom_fwd

from xlaprof.runtime.tape import computations
from xlaprof.runtime.trace.tensor import XLATensor

from .tensors.layout import unwrap_sharded_tensor


@functools.cache
def _einsum(equation: str) -> computations.Computation:
    return computations.Computation("xla::einsum", lambda *arrays: jnp.einsum(equation, *arrays))


def einsum(equation: str, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """``torch.einsum`` as one operation on ``xla``, without a gradient of its own."""
    plain = [unwrap_sharded_tensor(t) for t in tensors]
    if not all(isinstance(t, XLATensor) for t in plain):
        return torch.einsum(equation, *plain)
    return _einsum(equation)(*plain)[0]


class XLAPatchedLinear(torch.autograd.Function):
    """``torch.nn.functional.linear`` by einsum: ``XLAPatchedLinear.apply(input, weight, bias)``."""

    @staticmethod
    @custom_fwd(device_type="xla")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
        if torch.is_autocast_enabled("xla"):
            dtype = torch.get_autocast_dtype("xla")
            input, weight = input.to(dtype), weight.to(dtype)
            bias = bias if bias is None else bias.to(dtype)
        ctx.save_for_backward(input, weight, bias)
        product = einsum("...n,mn->...m", (input, weight))
        return product if bias is None else product + bias

    @staticmethod
    @custom_bwd(device_type="xla")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        input, weight, bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            einsum("...m,mn->...n", (grad_output, weight)) if wanted[0] else None,
            einsum("...m,...n->mn", (grad_output, input)) if wanted[1] else None,
            einsum("...m->m", (grad_output,)) if bias is not None and wanted[2] else None,
        )


def xla_patched_nn_linear_forward(m: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """``m.forward(input)`` by :class:`XLAPatchedLinear`."""
    return cast(torch.Tensor, XLAPatchedLinear.apply(input, m.weight, m.bias))  # type: ignore[no-untyped-call]


class EinsumLinear(torch.nn.Linear):
    """``torch.nn.Linear`` by :class:`XLAPatchedLinear`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return xla_patched_nn_linear_forward(self, input)


def apply_xla_patch_to_nn_linear(module: torch.nn.Module) -> torch.nn.Module:
    """Replace each ``nn.Linear`` in ``module`` by an :class:`EinsumLinear` with the same parameters."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear) and not isinstance(child, EinsumLinear):
            with torch.device("meta"):
                other = EinsumLinear(child.in_features, child.out_features, bias=child.bias is not None)
            other.load_state_dict(child.state_dict(keep_vars=True), strict=True, assign=True)
            setattr(module, name, other)
        else:
            apply_xla_patch_to_nn_linear(child)
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """Keep XLA from fusing ``m``'s backward pass with others: its gradients pass a barrier at its end."""

    def barrier(module: torch.nn.Module, grad_input: Any, grad_output: Any) -> None:
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        tensors = [t for t in (*gradients, *grad_input) if isinstance(t, torch.Tensor)]
        computations.optimization_barrier_([unwrap_sharded_tensor(t) for t in tensors])

    m.register_full_backward_hook(barrier)
