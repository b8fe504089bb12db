"""``out=`` and in-place operations follow PyTorch's rules on dtypes, shapes, shared memory and autograd."""

from __future__ import annotations

import pytest
import torch


def test_an_output_of_another_dtype() -> None:
    x = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match=r"^result type Float can't be cast to the desired output type Long"):
        torch.add(x, x, out=torch.empty(2, dtype=torch.int64, device="xla"))
    wide = torch.empty(2, dtype=torch.float64, device="xla")
    torch.add(x, x, out=wide)  # one that it can be cast to
    assert wide.tolist() == [2.0, 2.0]


def test_an_output_of_another_shape_is_resized_with_a_warning() -> None:
    x, out = torch.ones(2, 3, device="xla"), torch.empty(5, device="xla")
    with pytest.warns(UserWarning, match=r"resized since it had shape \[5\].*required output shape \[2, 3\]") as caught:
        torch.add(x, x, out=out)
    assert caught[0].filename == __file__
    assert out.tolist() == [[2.0] * 3] * 2
    torch.add(x, x, out=torch.empty(0, device="xla"))  # an empty one, without


def test_an_output_on_another_device() -> None:
    x = torch.ones(2, device="xla")
    for call in (
        lambda: torch.add(x, x, out=torch.empty(2)),
        lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.empty(2, device="xla")),
    ):
        with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.* xla:0 and cpu!"):
            call()


def test_an_output_that_autograd_would_have_to_follow() -> None:
    w = torch.ones(2, device="xla", requires_grad=True)
    with pytest.raises(RuntimeError, match=r"functions with out=... arguments don't support automatic differentiation"):
        torch.add(w, w, out=torch.empty(2, device="xla"))


def test_memory_that_is_written_and_read_at_once() -> None:
    x = torch.arange(4.0, device="xla")
    for call in (
        lambda: x[1:].add_(x[:-1]),
        lambda: torch.ones(1, device="xla").expand(3).add_(1),
        lambda: torch.ones(1, device="xla").expand(3).copy_(x[:3]),
        lambda: torch.add(x[:-1], 1, out=x[1:]),
        lambda: torch.cat([x[:2], x[1:3]], out=x),
    ):
        with pytest.raises(RuntimeError, match=r"unsupported operation: .*refers? to a single memory location"):
            call()
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    x[:2].add_(x[2:])  # parts that do not overlap
    torch.add(x, 1, out=x)  # one and the same
    assert x.tolist() == [3.0, 5.0, 3.0, 4.0]


def test_a_write_that_does_not_fit() -> None:
    x = torch.ones(1, device="xla")
    with pytest.raises(RuntimeError, match=r"output with shape \[1\] doesn't match the broadcast shape \[3\]"):
        x.add_(torch.ones(3, device="xla"))
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        torch.ones(1, dtype=torch.int64, device="xla").mul_(0.5)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        torch.ones(1, device="xla", requires_grad=True).add_(1)
    assert x.item() == 1.0
