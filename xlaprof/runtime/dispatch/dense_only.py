"""Refuse tensors that the device cannot hold (sparse, quantized, nested) in one line, with advice.

A value on the device is dense, of a dtype that XLA computes with. For any other (``torch.ones(dtype=torch.qint8,
device="xla")``, ``empty_like`` of a sparse tensor), PyTorch finds no kernel and raises a very long error. The kernels
here replace that error.

Two calls never look for a kernel that could be registered: ``.to("xla")`` of a nested tensor of layout strided raises
PyTorch's long error, and ``.to("xla")`` of a quantized one returns it unmoved (its ``.device`` says so), as it does for
every device without quantized kernels.
"""

from __future__ import annotations

from typing import Any

import torch

from xlaprof.runtime.trace.errors import Foreign
from xlaprof.runtime.transfer import host

from .handlers import special
from .types import Args, Kwargs

aten = torch.ops.aten
_library = torch.library.Library("aten", "IMPL")


def no_kernel(op: str) -> Any:
    """The kernel of ``op`` for backends without one of their own: it raises."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        device = torch.device(kwargs.get("device") or "cpu")
        if device.type == "xla":
            host.require_form(kwargs.get("dtype") or torch.get_default_dtype(), kwargs.get("layout") or torch.strided)
        raise NotImplementedError(
            f"Could not run '{op}' with arguments from the '{device.type.upper()}' backend: this PyTorch has no kernel "
            f"for it (dtype {kwargs.get('dtype')}, layout {kwargs.get('layout')})"
        )

    return refuse


def nested_from_list(
    tensors: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """``torch.nested.nested_tensor`` of layout strided: refused on xla, PyTorch's kernel elsewhere."""
    if device is not None and torch.device(device).type == "xla":
        raise host.refuse_nested()
    return aten._nested_tensor_from_tensor_list.default._op_dk(
        torch._C.DispatchKey.CompositeExplicitAutograd, tensors, dtype, layout, device, pin_memory
    )


@special("aten._nested_view_from_jagged.default")
def view_from_jagged(args: Args, kwargs: Kwargs) -> Any:
    """Nested tensors of layout jagged are Python's, over dense values; their class makes them."""
    raise Foreign


def install() -> None:
    """Register the kernels."""
    quantized = "_empty_affine_quantized", "_empty_per_channel_affine_quantized"
    for name in ("empty.memory_format", "empty_strided", *quantized):
        _library.impl(name, no_kernel(f"aten::{name}"), "CompositeExplicitAutograd")
    _library.impl("_nested_tensor_from_tensor_list", nested_from_list, "CPU")
