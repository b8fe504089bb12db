"""``torch.autograd.Function``: own rules for backward, forward-mode and vmap; what a function says of its tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from .both import numbers, refusal, told_on_both

#: PyTorch scripts its decompositions for forward-mode AD when they are first needed
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


class Cube(torch.autograd.Function):
    """Every rule by hand."""

    @staticmethod
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x**3, x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, of_copy: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient + of_copy

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (x,) = ctx.saved_tensors
        return 3 * x * x * tangent, tangent.clone()

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: torch.Tensor) -> Any:
        return Cube.apply(x), (in_dims[0], in_dims[0])


class Square(torch.autograd.Function):
    """PyTorch makes the rule of vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Increment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        apart = y * 1
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(apart)
        return x * 2, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, none: Any) -> Any:
        assert none is None
        return gradient * 2, None


@told_on_both
def test_a_function_is_differentiated_by_its_rules(device: str) -> Any:
    def cube(x: torch.Tensor) -> torch.Tensor:
        return Cube.apply(x)[0]

    x, rows = numbers(3, device=device, grad=True), numbers(4, 3, device=device)
    cubed, copy = Cube.apply(x)
    (first,) = torch.autograd.grad(cubed.sum() + copy.sum(), x, create_graph=True)
    return (
        first,
        torch.autograd.grad(first.sum(), x),
        vmap(cube, 1)(rows),
        grad(lambda x: cube(x).sum())(rows),
        jvp(cube, (rows,), (rows,)),
        jacrev(cube)(rows[0]),
        jacfwd(cube)(rows[0]),
        vmap(Square.apply)(rows),
        vmap(grad(lambda x: Square.apply(x).sum()))(rows),
    )


@told_on_both
def test_a_function_may_write_to_its_argument_if_it_says_so(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    y = x * 1
    assert Increment.apply(y) is y
    y.sum().backward()
    return x.grad, y, refusal(lambda: Increment.apply(x))


@told_on_both
def test_a_function_that_is_differentiable_once(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    doubled, apart = Once.apply(x, numbers(3, device=device))
    (gradient,) = torch.autograd.grad(doubled.sum(), x, create_graph=True)
    return gradient, apart.requires_grad, refusal(lambda: gradient.sum().backward())


@told_on_both
def test_a_function_may_leave_the_device(device: str) -> Any:
    class OnHost(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor(x.detach().cpu().numpy() ** 2, device=x.device)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    x = numbers(2, 3, device=device, grad=True)
    OnHost.apply(x).sum().backward()
    return x.grad
