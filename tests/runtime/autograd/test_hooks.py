"""Hooks: on tensors, on gradients as they arrive, on modules, on nodes of the graph, on what the graph keeps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import xlaprof.runtime as xr

from .both import numbers, told_on_both


@told_on_both
def test_a_tensors_hook_sees_and_changes_its_gradient(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    y = x * 2
    seen: list[torch.Tensor] = []
    y.register_hook(lambda gradient: (seen.append(gradient.clone()), gradient * 3)[1])
    handle = x.register_hook(lambda gradient: gradient + 1)
    y.sum().backward()
    hooked, x.grad = x.grad, None
    handle.remove()
    (x * 2).sum().backward()
    return hooked, x.grad, seen


@told_on_both
def test_an_optimizer_may_step_as_each_gradient_arrives(device: str) -> Any:
    weights = [numbers(3, device=device, seed=i, grad=True) for i in range(3)]
    optimizers = {weight: torch.optim.SGD([weight], lr=0.1, momentum=0.9) for weight in weights}

    def step(weight: torch.Tensor) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for weight in weights:
        weight.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        sum((weight * weight).sum() for weight in weights).backward()
        xr.sync()
    return weights, [weight.grad is None for weight in weights]


@told_on_both
def test_modules_tell_and_change_what_passes_forward_and_backward(device: str) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, device="cpu", seed=i)
    model.to(device)
    seen: list[Any] = []
    model[0].register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    model[1].register_forward_hook(lambda _, inputs, output: output * 1.5)
    model[0].register_full_backward_hook(lambda _, into, out: seen.append((into, out)))
    model[2].register_full_backward_pre_hook(lambda _, out: tuple(gradient * 2 for gradient in out))
    x = numbers(5, 3, device=device, grad=True)
    model(x).sum().backward()
    return seen, x.grad, [parameter.grad for parameter in model.parameters()]


@told_on_both
def test_nodes_and_groups_of_tensors_have_hooks_too(device: str) -> Any:
    a, b = numbers(2, device=device, grad=True), numbers(2, device=device, seed=1, grad=True)
    y = (a * b).exp()
    seen: list[Any] = []
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda out: (out[0] * 2,))
    y.grad_fn.register_hook(lambda into, out: seen.append((into, out)))
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gradients: seen.append(gradients))
    edge = torch.autograd.graph.get_gradient_edge(y)
    y.sum().backward(retain_graph=True)
    return seen, a.grad, b.grad, torch.autograd.grad(y.sum(), edge)


@told_on_both
def test_what_the_graph_keeps_can_be_kept_elsewhere(device: str) -> Any:
    x = numbers(2, 3, device=device, grad=True)
    kept: list[str] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(str(tuple(tensor.shape)))
        return tensor.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to(device)):
        (x.sin() * x).sum().backward()
    with torch.autograd.graph.save_on_cpu():
        (x @ x.t()).exp().sum().backward()
    return x.grad, kept


@told_on_both
def test_a_saved_tensor_may_change_where_that_is_allowed(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.sin()
        y.mul_(0)
        z.sum().backward()
    return x.grad, y


@told_on_both
def test_the_engine_calls_back_when_a_pass_ends(device: str) -> Any:
    x = numbers(3, device=device, grad=True)
    called: list[int] = []
    engine: Any = torch.autograd.Variable._execution_engine
    x.register_hook(lambda gradient: engine.queue_callback(lambda: called.append(1)))
    (x * 2).sum().backward()
    return called
