"""``repr`` of a tensor on ``xla``, as for any other device, by one read.

PyTorch's own printer would show the name of our class, and indent by its length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _tensor_str as printer
from torch.autograd import forward_ad

from xlaprof.runtime.trace.tensor import method

_DEFAULTS = (torch.int64, torch.bool)


@method("__repr__")
def __repr__(tensor: torch.Tensor, *, tensor_contents: str | None = None) -> str:
    """``tensor([1., 2.], device='xla:0')``; ``tensor_contents`` in place of the values if given. One read."""
    contents = tensor_contents
    with torch.no_grad():
        primal, tangent = forward_ad.unpack_dual(tensor)
        prefix = "tensor("
        suffixes = [f"device='{tensor.device}'"]
        default = torch.get_default_dtype()
        shown = default, torch.complex128 if default is torch.float64 else torch.complex64, *_DEFAULTS
        if tensor.numel() == 0:
            values = "[]"
            if tensor.dim() != 1:
                suffixes.append(f"size={tuple(tensor.shape)}")
            if tensor.dtype is not default:  # no element shows it
                suffixes.append(f"dtype={tensor.dtype}")
        else:
            if not printer.PRINT_OPTS.edgeitems:
                suffixes.append(f"size={tuple(tensor.shape)}")
            if tensor.dtype not in shown:
                suffixes.append(f"dtype={tensor.dtype}")
            values = printer._tensor_str(primal.detach().cpu(), len(prefix)) if contents is None else contents
        suffixes += _history(tensor)
        if tangent is not None:
            suffixes.append(f"tangent={tangent}")
        line: str = printer._add_suffixes(prefix + (contents or values), suffixes, len(prefix), force_newline=False)
    return f"Parameter containing:\n{line}" if getattr(tensor, "_is_param", False) else line


def _history(tensor: torch.Tensor) -> list[str]:
    try:
        function: Any = tensor.grad_fn
    except RuntimeError:  # a view made and written without gradients
        return ["grad_fn=<Invalid>"]
    if function is not None:
        name = type(function).__name__
        return [f"grad_fn=<{function.name().rsplit('::', 1)[-1] if name == 'CppFunction' else name}>"]
    return ["requires_grad=True"] if tensor.requires_grad else []
