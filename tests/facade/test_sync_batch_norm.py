"""``xf.SyncBatchNorm`` in a world of one is ``torch.nn.BatchNorm``."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import xlaprof.torch_xla

import torch_xla  # isort: skip
import torch_xla.core.functions as xf  # isort: skip

assert xlaprof.torch_xla


@pytest.mark.parametrize(("shape", "kind"), [((8, 5), nn.BatchNorm1d), ((4, 5, 3, 2), nn.BatchNorm2d)])
def test_alone_it_is_torchs(shape: tuple[int, ...], kind: type[nn.Module]) -> None:
    x = torch.rand(shape) * 3 + 70  # a mean of which the squares would leave few digits of the variance
    here, there = xf.SyncBatchNorm(5).to("xla"), kind(5)
    results = []
    for model, device in ((here, "xla"), (there, "cpu")):
        given = x.detach().to(device).requires_grad_()
        y = model(given)
        (y * torch.arange(y.numel(), device=device).reshape(y.shape)).sum().backward()
        torch_xla.sync()
        gradients = [t.grad for t in (given, *model.parameters())]
        results.append([t.cpu() for t in (y, *gradients) if t is not None])
    assert len(results[0]) == 4
    assert_close(*results, rtol=1e-3, atol=1e-3)
    assert_close(here.running_mean.cpu(), there.running_mean)
    assert_close(here.running_var.cpu(), there.running_var)
    assert_close(here.eval()(x.to("xla")).cpu(), there.eval()(x), rtol=1e-4, atol=1e-4)


def test_it_keeps_half_precision_and_refuses_other_channels() -> None:
    norm = xf.SyncBatchNorm(5).to("xla")
    assert norm(torch.rand(4, 5).to("xla").bfloat16()).dtype is torch.bfloat16
    with pytest.raises(ValueError, match=r"a batch of shape \[4, 6\] has not 5 channels"):
        norm(torch.rand(4, 6).to("xla"))
