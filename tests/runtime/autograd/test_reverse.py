"""Backward passes: gradients of gradients, of some inputs, in batches; what is kept, added up, refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import functional, gradcheck, gradgradcheck

import xlaprof.runtime as xr

from .both import numbers, refusal, told_on_both

#: PyTorch scripts its decompositions for forward-mode AD when they are first needed
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@told_on_both
def test_gradients_of_gradients(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return first, second, torch.autograd.grad(second.sum(), x)


@told_on_both
def test_inputs_that_take_no_part(device: str) -> Any:
    x, apart = numbers(3, device=device, grad=True), numbers(3, device=device, grad=True)
    gone = torch.autograd.grad(x.sum(), [x, apart], allow_unused=True)
    zeros = torch.autograd.grad(x.sum(), [x, apart], allow_unused=True, materialize_grads=True)
    return gone[0], gone[1] is None, zeros, refusal(lambda: torch.autograd.grad(x.sum(), [x, apart]))


@told_on_both
def test_many_gradients_in_one_batched_pass(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    directions = torch.eye(3, dtype=torch.float64, device=device)
    return torch.autograd.grad(x.sin() * x.sum(), x, directions, is_grads_batched=True)


@told_on_both
def test_jacobians_hessians_and_products_with_them(device: str) -> Any:
    def wave(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * x.sum()

    def cube(x: torch.Tensor) -> torch.Tensor:
        return (x**3).sum()

    x, v = numbers(3, device=device), numbers(3, device=device, seed=3)
    return (
        functional.jacobian(wave, x),
        functional.jacobian(wave, x, vectorize=True),
        functional.jacobian(wave, x, vectorize=True, strategy="forward-mode"),
        functional.hessian(cube, x),
        functional.hessian(cube, x, vectorize=True, outer_jacobian_strategy="forward-mode"),
        functional.vjp(wave, x, v),
        functional.jvp(wave, x, v),
        functional.vhp(cube, x, v),
        functional.hvp(cube, x, v),
        refusal(lambda: functional.jacobian(lambda x: numbers(3, device=device), x, strict=True)),
    )


@told_on_both
def test_gradients_add_up_in_place_and_between_barriers(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    for _ in range(3):
        ((x * x).sum() / 3).backward()
        xr.sync()
    first = x.grad
    x.exp().sum().backward(inputs=[x])
    assert first is x.grad
    y = x * 2
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    once = y.grad.clone()
    z.backward()
    return x.grad, once, y.grad, y.is_leaf, y.retains_grad, refusal(z.backward)


@told_on_both
def test_writes_through_views_are_differentiated(device: str) -> Any:
    x = numbers(4, 3, device=device, grad=True)
    y = x * 1
    y[1:3].mul_(2)
    y.t()[0].add_(x[:, 1])
    flat = y.view(-1)
    flat[::2] = flat[1::2] * 3
    y.diagonal().exp_()
    (y**2).sum().backward()
    return x.grad, y


@told_on_both
def test_gradients_cross_devices(device: str) -> Any:
    host, there = numbers(3, device="cpu", grad=True), numbers(3, device=device, seed=1, grad=True)
    filled = torch.zeros(3, dtype=torch.float64)
    filled.copy_(there)
    ((host.to(device) * there).sum() + filled.sum().to(device)).backward()
    return host.grad, there.grad


@told_on_both
def test_a_backward_pass_may_run_another(device: str) -> Any:
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
            ctx.depth = depth
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            if not ctx.depth:
                return gradient * 3, None
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                Inner.apply(again, ctx.depth - 1).sum().backward()
            return again.grad * gradient, None

    x = numbers(3, device=device, grad=True)
    Inner.apply(x, 70).sum().backward()  # deeper than the engine works off on one thread
    return x.grad


@told_on_both
def test_writes_that_a_backward_pass_cannot_bear_are_refused(device: str) -> Any:
    x = numbers(3, device=device, grad=True)

    def result_overwritten() -> None:
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    def argument_overwritten() -> None:
        z = x * 1
        y = z.sin()
        z[0] = 1
        y.sum().backward()

    whole = (x * 1).unbind(0)
    calls = [
        result_overwritten,
        argument_overwritten,
        lambda: x.add_(1),
        lambda: x.view(3, 1).add_(1),
        lambda: whole[0].add_(1),
        lambda: (x * 2).backward(),
        lambda: x.detach().sum().backward(),
        lambda: x.long().requires_grad_(),
    ]
    said = [refusal(call) for call in calls]
    assert all(said)
    return said


@told_on_both
def test_versions_count_writes(device: str) -> Any:
    x = numbers(3, device=device)
    versions = [x._version]
    writes = [
        lambda: x.add_(1),
        lambda: x.view(-1).mul_(2),
        lambda: x.detach().add_(1),
        lambda: x.data.add_(1),  # of which autograd is not told
        lambda: x.copy_(x + 1),
        lambda: x.zero_(),
    ]
    for write in writes:
        write()
        versions.append(x._version)
    return versions, x


@told_on_both
def test_inference_tensors_stay_out_of_graphs(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    with torch.inference_mode():
        y = x * 2
        data = x.data
        with torch.inference_mode(False):
            normal = numbers(3, device=device)
    refused = [
        refusal(lambda: y.add_(1)),
        refusal(lambda: (x * y).sum().backward()),
        refusal(y.requires_grad_),
        refusal(lambda: y._version),
    ]
    with torch.inference_mode():
        y.add_(1).view(3, 1).mul_(2)
    with torch.no_grad():
        unwatched = x * 2
        with torch.enable_grad():
            watched = x * 2
    flags = [y.is_inference(), normal.is_inference(), unwatched.requires_grad, watched.requires_grad]
    return refused, y, flags, data


@told_on_both
def test_anomaly_mode_names_the_function_and_the_line(device: str) -> Any:
    x = torch.zeros(3, device=device, requires_grad=True)

    def pass_with_nan() -> None:
        (x.sqrt() * 0).sum().backward()

    with warnings.catch_warnings(record=True) as told, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        said = refusal(pass_with_nan)
    assert said == "Function 'SqrtBackward0' returned nan values in its 0th output."
    (forward,) = [str(w.message) for w in told if "Traceback of forward call" in str(w.message)]
    assert "(x.sqrt() * 0).sum().backward()" in forward
    return said


@pytest.mark.slow
@told_on_both
def test_numerical_differentiation_agrees(device: str) -> Any:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh()

    x, w = numbers(2, 3, device=device, grad=True), numbers(3, 3, device=device, seed=1, grad=True)
    c = numbers(2, device=device, grad=True, dtype=torch.complex128)
    assert gradcheck(layer, (x, w))
    assert gradgradcheck(layer, (x, w))
    assert gradcheck(
        torch.sin,
        (x,),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        check_undefined_grad=True,
    )
    assert gradcheck(lambda z: z * z.conj(), (c,))
    return gradcheck(layer, (x, w), fast_mode=True)


@pytest.mark.slow
@told_on_both
def test_reparametrized_weights_train(device: str) -> Any:
    out = []
    for reparametrize in (
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.spectral_norm,
    ):
        torch.manual_seed(3)
        layer = nn.Linear(3, 3).double()
        layer.weight.data, layer.bias.data = numbers(3, 3, device="cpu"), numbers(3, device="cpu")
        layer = reparametrize(layer).to(device)
        y = layer(numbers(2, 3, device=device))
        y.sum().backward()
        out += [y, [p.grad for p in layer.parameters()]]
    return out
