"""``xla_quantized_matmul``: products with weights of 8 or 4 bits are those of the weights that they stand for."""

from __future__ import annotations

import pytest
import torch

import xlaprof.torch_xla

import torch_xla  # isort: skip
from torch_xla.experimental.xla_quantized_matmul import XlaQuantizedLinear  # isort: skip

assert xlaprof.torch_xla
assert torch_xla


def rounded(weight: torch.Tensor, bits: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight`` in steps of its largest number along ``dim``: the integers, and what one step is."""
    most = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(dim) / most
    return (weight / scale.unsqueeze(dim)).round().to(torch.int8), scale


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_layer_computes_what_its_weights_stand_for(bits: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 6), torch.randn(8, 6)
    steps, scale = rounded(weight, bits, 1)
    layer = XlaQuantizedLinear(6, 8, int4_weight=bits == 4)
    layer.load_quantized_weight(steps, scale)
    expected = x @ (steps * scale.unsqueeze(1)).T
    torch.testing.assert_close(layer(x), expected)
    assert torch.allclose(expected, x @ weight.T, atol=6 * weight.abs().max().item() / 2**bits * 2)
    there = layer.to("xla")
    torch.testing.assert_close(there(x.to("xla")).cpu(), expected)
    compiled = torch.compile(there, backend="openxla", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x.to("xla")).cpu(), expected)


def test_blocks_and_zero_points() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6)
    steps = torch.randint(-128, 128, (3, 2, 5), dtype=torch.int8)
    scale, zero = torch.rand(3, 5), torch.randint(-9, 9, (3, 5)).float()
    layer = XlaQuantizedLinear(6, 5, is_symmetric=False, block_size=2)
    layer.load_quantized_weight(steps, scale, zero)
    whole = ((steps - zero.unsqueeze(1)) * scale.unsqueeze(1)).reshape(6, 5)
    torch.testing.assert_close(layer(x), x @ whole, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(layer.to("xla")(x.to("xla")).cpu(), x @ whole, rtol=1e-4, atol=1e-3)
    flat = XlaQuantizedLinear(6, 5, is_symmetric=False)
    flat.load_quantized_weight(steps.reshape(6, 5).T.contiguous(), scale[0], zero[0])
    expected = x @ ((steps.reshape(6, 5) - zero[0]) * scale[0])
    torch.testing.assert_close(flat(x), expected, rtol=1e-4, atol=1e-3)


def test_activations_are_rounded_too() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 16), torch.randn(3, 16)
    steps, scale = rounded(weight, 8, 1)
    layer = XlaQuantizedLinear(16, 3, quantize_activation=True)
    layer.load_quantized_weight(steps, scale)
    taken, step = rounded(x, 8, 1)
    expected = (taken * step.unsqueeze(1)) @ (steps * scale.unsqueeze(1)).T
    torch.testing.assert_close(layer.to("xla")(x.to("xla")).cpu(), expected, rtol=1e-4, atol=1e-4)


def test_weights_of_another_form_are_refused() -> None:
    layer = XlaQuantizedLinear(6, 8)
    with pytest.raises(AssertionError, match=r"expected to be torch.int8, got torch.float32"):
        layer.load_quantized_weight(torch.ones(8, 6), torch.ones(8))
    with pytest.raises(AssertionError, match=r"Weight shape is expected to be \[8, 6\], got \[6, 8\]"):
        layer.load_quantized_weight(torch.ones(6, 8, dtype=torch.int8), torch.ones(8))
    with pytest.raises(AssertionError, match="is_symmetric=False"):
        layer.load_quantized_weight(torch.ones(8, 6, dtype=torch.int8), torch.ones(8), torch.ones(8))
    with pytest.raises(AssertionError, match="block_size has to divide the 6 input features, got 4"):
        torch.ops.xla.quantized_matmul(
            torch.ones(2, 6), torch.ones(8, 6, dtype=torch.int8), torch.ones(8), block_size=4
        )
