"""Sparse, quantized and nested tensors, exotic dtypes: refused in one line, or made to work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

pytestmark = [pytest.mark.filterwarnings("ignore:Sparse CSR|.*quantize|.*nested tensors|ComplexHalf|The PyTorch API")]
DENSE = torch.eye(2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: x.to_sparse(), "a torch.sparse_coo tensor cannot live on xla: call to_dense() first"),
        (lambda x: x.to_sparse_csr(), "a torch.sparse_csr tensor cannot live on xla"),
        (lambda x: torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device="xla"), "a torch.sparse_coo tensor"),
        (lambda x: torch.empty(2, 2, layout=torch.sparse_csr, device="xla"), "a torch.sparse_csr tensor"),
        (lambda x: torch.zeros_like(DENSE.to_sparse(), device="xla"), "a torch.sparse_coo tensor"),
        (lambda x: DENSE.to_sparse().to("xla"), "a torch.sparse_coo tensor"),
        (lambda x: torch.sparse.mm(DENSE.to_sparse(), x), "Expected all tensors to be on the same device"),
        (lambda x: torch.ones(2, dtype=torch.qint8, device="xla"), "a torch.qint8 tensor cannot live on xla"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), "a torch.quint8 tensor cannot live on xla"),
        (lambda x: x.to(torch.complex32), "a torch.complex32 tensor cannot live on xla"),
        (lambda x: torch.zeros(2, dtype=torch.float8_e8m0fnu, device="xla"), "a torch.float8_e8m0fnu tensor"),
        (lambda x: torch.nested.nested_tensor([DENSE], device="xla"), "a nested tensor of layout torch.strided"),
        (lambda x: torch.nested.as_nested_tensor([x, x]), "make it with layout=torch.jagged"),
        (lambda x: DENSE.to_mkldnn().to("xla"), "Unsupported device type for mkldnn layout: xla"),
    ],
)
def test_what_has_no_form_is_refused_in_one_line(call: Callable[[torch.Tensor], object], says: str) -> None:
    x = DENSE.to("xla")
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        call(x)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (x + 1).tolist() == [[2.0, 1.0], [1.0, 2.0]]


def test_sparse_gradients_are_refused_where_they_appear() -> None:
    table = nn.Embedding(4, 2, sparse=True).to("xla")
    loss = table(torch.tensor([1, 2], device="xla")).sum()
    with pytest.raises(RuntimeError, match=r"a torch.sparse_coo tensor cannot live on xla"):
        loss.backward()
    table.sparse = False
    table(torch.tensor([1, 2], device="xla")).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.sum().item() == 4.0


def test_nested_tensors_of_layout_jagged_train() -> None:
    rows = [torch.ones(2, 4), torch.ones(3, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device="xla")
    layer = nn.Linear(4, 2).to("xla")
    layer(nested).values().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[5.0] * 4] * 2
    assert (nested * 2).to_padded_tensor(0.0).sum().item() == 40.0


def test_other_devices_keep_their_kernels() -> None:
    assert torch.empty(2).device.type == "cpu"
    assert torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).size(0) == 2
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::empty.memory_format' .* 'IPU' backend"):
        torch.empty(2, device="ipu")
