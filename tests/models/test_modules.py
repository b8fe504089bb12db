"""Every module of ``torch.nn`` over PyTorch's own samples: outputs and gradients, in training and in evaluation."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from runtime.counting import counted
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

import xlaprof.runtime as xr

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import ModuleInfo, module_db

pytestmark = pytest.mark.filterwarnings("default")

INFOS = {info.name.removeprefix("nn."): info for info in module_db}
#: sums of hundreds of float32 logarithms: the CPU's are as far from float64
LOOSE = {"CTCLoss": 1e-4}
#: every how many samples are tried, where all of them take XLA minutes
STRIDE = {"Transformer": 5, "TransformerDecoderLayer": 2}


def moved(value: Any, device: str) -> Any:
    def move(leaf: Any) -> Any:
        return leaf.detach().to(device).requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf

    return tree_map(move, value)


def outcome(module: nn.Module, sample: Any, device: str, training: bool) -> list[Tensor | None]:
    """Outputs, and in training the gradients of inputs and parameters, of a copy of ``module`` on ``device``."""
    module = copy.deepcopy(module).to(device).train(training)
    torch.manual_seed(1)  # lazy modules make their parameters in their first call
    args, kwargs = moved((sample.args, sample.kwargs), device)
    result = module(*args, **kwargs)
    outs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    wanted = [out for out in outs if out.requires_grad]
    if training and wanted:
        torch.autograd.backward(wanted, [torch.ones_like(out) for out in wanted])
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    return [out.detach() for out in outs] + [leaf.grad for leaf in (*inputs, *module.parameters())]


def samples(info: ModuleInfo, training: bool) -> Iterator[tuple[nn.Module, Any]]:
    torch.manual_seed(0)
    for sample in info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
    ):
        if sample.forward_input is not None:
            made = sample.constructor_input
            yield info.module_cls(*made.args, **made.kwargs).to(torch.float32), sample.forward_input


@pytest.mark.slow
@pytest.mark.parametrize("name", INFOS)
def test_a_module_computes_what_it_does_on_the_cpu(name: str) -> None:
    pairs = []
    with counted() as counts:
        for training in (True, False):
            for module, sample in islice(samples(INFOS[name], training), 0, None, STRIDE.get(name, 1)):
                pairs.append((outcome(module, sample, "xla", training), outcome(module, sample, "cpu", training)))
        xr.sync()  # all samples are one program
    assert pairs
    for ours, theirs in pairs:
        assert [t is None for t in ours] == [t is None for t in theirs]
        for our, their in zip(ours, theirs, strict=True):
            if our is not None and their is not None:
                torch.testing.assert_close(our.cpu(), their, rtol=2e-4, atol=LOOSE.get(name, 2e-5), equal_nan=True)
    fallbacks = {k for k, n in counts.items() if n and k.startswith("aten::") and k != "aten::_local_scalar_dense"}
    assert not fallbacks


def test_products_of_groups_are_one_operation() -> None:
    torch.manual_seed(0)
    rows, experts, wanted = torch.randn(6, 8), torch.randn(3, 8, 16), torch.randn(6, 16)
    ends = torch.tensor([2, 2, 6], dtype=torch.int32)
    results = []
    with counted() as counts:
        for device in ("cpu", "xla"):
            x, w = (t.to(device, copy=True).requires_grad_() for t in (rows, experts))
            out = nn.functional.grouped_mm(x, w, offs=ends.to(device))
            (out * wanted.to(device)).sum().backward()
            results.append([t.detach().cpu() for t in (out, x.grad, w.grad)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not [k for k, n in counts.items() if n and k.startswith("aten::")]
