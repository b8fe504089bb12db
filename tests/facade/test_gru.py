"""``GRU`` as a loop: the numbers of ``nn.GRU``, one operation for each layer and pass."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

import xlaprof.torch_xla

import torch_xla  # isort: skip
from torch_xla.experimental.gru import GRU  # isort: skip

assert xlaprof.torch_xla


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "shape", "state"),
    [
        ({}, (5, 2, 3), None),
        ({"num_layers": 2, "batch_first": True}, (2, 5, 3), (2, 2, 4)),
        ({"bias": False, "batch_first": True}, (5, 3), (1, 4)),
    ],
)
def test_it_computes_what_pytorch_s_does(options: dict[str, Any], shape: Any, state: Any) -> None:
    torch.manual_seed(0)
    usual = nn.GRU(3, 4, **options)
    looped = GRU(3, 4, **options)
    looped.load_state_dict(usual.state_dict())
    looped.to("xla")
    x, begin = torch.randn(shape, requires_grad=True), torch.randn(state) if state else None
    there = x.detach().to("xla").requires_grad_()
    expected = usual(x, begin)
    found = looped(there, None if begin is None else begin.to("xla"))
    for wanted, got in zip(expected, found, strict=True):
        torch.testing.assert_close(got.detach().cpu(), wanted.detach())
    for outs in (expected, found):
        (outs[0].square().sum() + outs[1].sum()).backward()
    gradients = [(x, there), *zip(usual.parameters(), looped.parameters(), strict=True)]
    for wanted, got in gradients:
        assert got.grad is not None
        torch.testing.assert_close(got.grad.cpu(), wanted.grad)


def test_the_graph_does_not_grow_with_the_sequence() -> None:
    layer = GRU(3, 4).to("xla")

    def operations(length: int) -> int:
        output, _ = layer(torch.ones(length, 2, 3, device="xla"))
        return len(torch_xla._XLAC._get_xla_tensors_text([output]).splitlines())

    assert operations(30) == operations(3)


def test_dropout_between_the_layers() -> None:
    layer = GRU(3, 4, num_layers=2, dropout=0.5).to("xla")
    x = torch.ones(4, 2, 3, device="xla")
    assert not torch.equal(layer(x)[0], layer(x)[0])
    whole = deepcopy(layer).eval()
    assert torch.equal(whole(x)[0], whole(x)[0])


def test_what_it_does_not_take() -> None:
    assert type(GRU(3, 4, bidirectional=True)) is nn.GRU
    layer = GRU(3, 4).to("xla")
    with pytest.raises(ValueError, match="Expected input to be 2D or 3D, got 1D"):
        layer(torch.ones(3, device="xla"))
    with pytest.raises(RuntimeError, match="hx has 2 dimensions and the input 3"):
        layer(torch.ones(5, 2, 3, device="xla"), torch.ones(1, 4, device="xla"))
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(5, 2, 3), torch.tensor([5, 3]))
    with pytest.raises(NotImplementedError, match=r"GRU takes no PackedSequence: use torch\.nn\.GRU"):
        layer(packed)
