"""``torch_xla.experimental.xla_quantized_matmul``: linear layers with weights of 8 or 4 bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scale, Tensor? zero_point=None, int? block_size=-1, "
    "bool? int4_weight=False, bool? quantize_activation=False) -> Tensor"
)


def _quantized_matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    block_size: int = -1,
    int4_weight: bool = False,
    quantize_activation: bool = False,
) -> torch.Tensor:
    """``x @ (w - zero_point).T * scale`` for int8 ``w``, with one ``scale`` and ``zero_point`` for each row or block.

    With blocks, ``w`` is [blocks, block_size, out_features], ``scale`` and ``zero_point`` are [blocks, out_features].
    With ``quantize_activation`` the rows of ``x`` are rounded to 8 bits, too.
    """
    _check(x, w, scale, zero_point, block_size)
    if int4_weight:
        w = (w << 4) >> 4  # wrapped to 4 bits, -8 to 7
    steps = None
    if quantize_activation:
        steps = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        x = (x / steps).round().clamp(-128, 127)
    if block_size == -1:
        product = F.linear(x, w.to(x.dtype)) * scale
        if zero_point is not None:
            product = product - x.sum(-1, keepdim=True) * (zero_point * scale)
    else:
        blocks = x.reshape(*x.shape[:-1], w.shape[0], block_size)
        partial = torch.einsum("...bi,bio->...bo", blocks, w.to(x.dtype))
        if zero_point is not None:
            partial = partial - blocks.sum(-1, keepdim=True) * zero_point
        product = (partial * scale).sum(-2)
    return product if steps is None else product * steps


# Composite: recorded, compiled and differentiated as the operations that it calls.
_library.impl("quantized_matmul", _quantized_matmul, "CompositeImplicitAutograd")


def _check(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, size: int) -> None:
    """Raise ``AssertionError`` for weights of another form, as PyTorch/XLA does."""
    last = x.shape[-1]
    if size == -1:
        whole = (scale.shape[0], last)
        numbers: tuple[int, ...] = (whole[0],)
    else:
        if size <= 0 or last % size:
            raise AssertionError(f"block_size has to divide the {last} input features, got {size}")
        whole = (last // size, size, scale.shape[-1])  # type: ignore[assignment]
        numbers = (whole[0], scale.shape[-1])
    if w.dtype != torch.int8:
        raise AssertionError(f"Weight dtype is expected to be torch.int8, got {w.dtype}.")
    for name, tensor, shape in (("Weight", w, whole), ("scale", scale, numbers), ("zero_point", zero_point, numbers)):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise AssertionError(f"{name} shape is expected to be {list(shape)}, got {list(tensor.shape)}.")


class XlaQuantizedLinear(torch.nn.Module):
    """A linear layer with quantized weights, without bias: :meth:`load_quantized_weight` sets the weights."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = True,
        block_size: int = -1,
        int4_weight: bool = False,
        quantize_activation: bool = False,
    ) -> None:
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim
        self.is_symmetric = is_symmetric
        self.block_size = block_size
        self.int4_weight = int4_weight
        self.quantize_activation = quantize_activation
        rows: tuple[int, ...] = (output_dim,)
        shape: tuple[int, ...] = (output_dim, input_dim)
        if block_size != -1:
            rows, shape = (input_dim // block_size, output_dim), (input_dim // block_size, block_size, output_dim)
        self.register_buffer("weight", torch.zeros(shape, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(rows))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(rows))

    def load_quantized_weight(
        self, weight: torch.Tensor, weight_scaler: torch.Tensor, zero_point: torch.Tensor | None = None
    ) -> None:
        """Take ``weight`` (int8, [out_features, in_features]) and its scales, and zero points unless symmetric."""
        if self.is_symmetric is not (zero_point is None):
            raise AssertionError("zero_point is for layers with is_symmetric=False, which want one")
        _check(weight.new_empty(0, self.input_dim), weight, weight_scaler, zero_point, self.block_size)
        self.weight, self.weight_scaler, self.zero_point = weight, weight_scaler, zero_point

    def forward(self, x: torch.Tensor) -> Any:
        """The product, in the dtype of ``x``."""
        return torch.ops.xla.quantized_matmul(
            x,
            self.weight,
            self.weight_scaler,
            self.zero_point,
            block_size=self.block_size,
            int4_weight=self.int4_weight,
            quantize_activation=self.quantize_activation,
        )
