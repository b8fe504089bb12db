"""Batches of sequences of several lengths: these stay on the host, where loaders make them, as on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import xlaprof.runtime as xr

LENGTHS = torch.tensor([3, 2, 1])
PADDED = torch.linspace(-1, 1, 24).view(3, 4, 2)


@pytest.mark.parametrize(("lengths", "in_order"), [(LENGTHS, True), ([1, 3, 2], False)])
def test_a_packed_batch_goes_through_a_recurrent_network(lengths: Any, in_order: bool) -> None:
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = nn.GRU(2, 3, batch_first=True).to(device)
        x = PADDED.detach().to(device).requires_grad_()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=in_order)
        assert packed.batch_sizes.device.type == "cpu"
        y, sizes = pad_packed_sequence(network(packed)[0], batch_first=True)
        y.square().sum().backward()
        assert x.grad is not None
        return [y.detach().cpu(), sizes, x.grad.cpu()]

    xr.metrics.clear_all()
    torch.testing.assert_close(run("xla"), run("cpu"))
    assert not [name for name in xr.metrics.counter_names() if name.startswith("aten::_pack")]


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_ctc_takes_lengths_of_the_host(reduction: str) -> None:
    targets, target_lengths = torch.tensor([[1, 2], [2, 1], [1, 1]]), torch.tensor([2, 1, 0])

    def run(device: str) -> list[torch.Tensor]:
        x = PADDED.reshape(4, 3, 2).repeat(1, 1, 2).log_softmax(-1).to(device).requires_grad_()
        loss = F.ctc_loss(x, targets.to(device), LENGTHS, target_lengths, reduction=reduction)
        loss.sum().backward()
        assert x.grad is not None
        return [loss.detach().cpu(), x.grad.cpu()]

    torch.testing.assert_close(run("xla"), run("cpu"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch._pack_padded_sequence(x, torch.tensor([2, 3, 1]), True),
        lambda x: torch._pack_padded_sequence(x, torch.tensor([3, 2, 0]), True),
        lambda x: torch._pack_padded_sequence(x, torch.tensor([3, 2]), True),
        lambda x: torch._pack_padded_sequence(x[:0], torch.tensor([3, 2]), True),
    ],
)
def test_lengths_that_do_not_fit_are_pytorchs_errors(wrong: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(RuntimeError) as expected:
        wrong(PADDED)
    with pytest.raises(RuntimeError) as raised:
        wrong(PADDED.to("xla"))
    assert str(raised.value) == str(expected.value)


def test_lengths_on_the_device_are_refused_as_everywhere() -> None:
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor, but got 1D xla:0"):
        pack_padded_sequence(PADDED.to("xla"), LENGTHS.to("xla"), batch_first=True)
