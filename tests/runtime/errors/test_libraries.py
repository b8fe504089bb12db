"""Operators of the user's own: which kernel runs on ``xla``, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ..counting import counted  # noqa: TID252


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("xlaprof_own", "FRAGMENT") as library:
        yield library


@pytest.fixture
def x() -> Tensor:
    return torch.ones(3, device="xla")


def test_a_kernel_for_the_cpu_stands_in_and_is_counted(x: Tensor) -> None:
    @torch.library.custom_op("xlaprof_own::twice", mutates_args=(), device_types="cpu")
    def twice(a: Tensor) -> Tensor:
        return torch.from_numpy(a.numpy() * 2)

    @torch.library.custom_op("xlaprof_own::count_up", mutates_args=("a",), device_types="cpu")
    def count_up(a: Tensor) -> None:
        a += 1

    with counted() as counts:
        assert twice(x).tolist() == [2.0] * 3
        count_up(x)
    assert x.tolist() == [2.0] * 3
    assert (counts["xlaprof_own::twice"], counts["xlaprof_own::count_up"]) == (1, 1)


def test_a_kernel_for_xla_or_for_all_devices_is_recorded_and_differentiated(x: Tensor) -> None:
    @torch.library.custom_op("xlaprof_own::cube", mutates_args=())
    def cube(a: Tensor) -> Tensor:
        return a**3

    cube.register_autograd(
        lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    @torch.library.custom_op("xlaprof_own::halve", mutates_args=(), device_types="xla")
    def halve(a: Tensor) -> Tensor:
        return a / 2

    w = (x * 2).requires_grad_()
    with counted() as counts:
        (cube(w).sum() + halve(x).sum()).backward()
    assert w.grad is not None
    assert not any("xlaprof_own" in name for name, times in counts.items() if times)
    assert w.grad.tolist() == [12.0] * 3
    assert halve(x).tolist() == [0.5] * 3


def test_an_operator_without_a_kernel_says_how_to_register_one(library: torch.library.Library, x: Tensor) -> None:
    library.define("elsewhere(Tensor x) -> Tensor")
    library.impl("elsewhere", torch.clone, "CUDA")
    library.impl("elsewhere", torch.empty_like, "Meta")
    says = r"Could not run 'xlaprof_own::elsewhere' on xla: .*torch.library.register_kernel\('xlaprof_own::elsewhere',"
    with pytest.raises(NotImplementedError, match=says) as caught, counted() as counts:
        torch.ops.xlaprof_own.elsewhere(x)
    assert caught.value.__notes__[0].startswith("on xla: xlaprof_own::elsewhere(f32[3]) at ")
    assert counts["xlaprof_own::elsewhere"] == 0
    library.impl("elsewhere", lambda x: x + 1, "XLA")  # as it says
    assert torch.ops.xlaprof_own.elsewhere(x).tolist() == [2.0] * 3


def test_an_in_place_operator_of_the_cpu_returns_the_tensor_it_was_given(
    library: torch.library.Library, x: Tensor
) -> None:
    library.define("bump_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.impl("bump_", lambda x, y: x.add_(y), "CPU")
    assert torch.ops.xlaprof_own.bump_(x, x) is x
    assert x.tolist() == [2.0] * 3


def test_a_kernel_that_raises(library: torch.library.Library, x: Tensor) -> None:
    library.define("refuses(Tensor x) -> Tensor")

    def refuses(x: Tensor) -> Tensor:
        raise ValueError("only on Sundays")

    library.impl("refuses", refuses, "CPU")
    with pytest.raises(ValueError, match="only on Sundays"):
        torch.ops.xlaprof_own.refuses(x)
    assert x.tolist() == [1.0] * 3
