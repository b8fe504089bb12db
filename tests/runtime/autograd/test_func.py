"""``torch.func`` and forward-mode AD: the transforms, nested, over modules, and what they make of random numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional

import xlaprof.runtime as xr

from .both import numbers, refusal, told_on_both

#: PyTorch scripts its decompositions for forward-mode AD when they are first needed
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def wave(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.sum()


def energy(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum() * x.sin().sum()


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    model = model.double()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, device="cpu", seed=seed + i)
    return model


@told_on_both
def test_tangents_are_carried_through_operators_views_and_writes(device: str) -> Any:
    x, t = numbers(3, device=device), numbers(3, device=device, seed=1)
    weight = numbers(2, 3, device=device, seed=4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        written = dual.clone()
        written.mul_(dual)
        shown = forward_ad.make_dual(numbers(4, 3, device=device).t()[1:], numbers(2, 4, device=device, seed=2))
        results = ((dual.sin() * dual).exp(), functional.linear(dual, weight), written, dual[1:], shown * shown)
        return [tuple(forward_ad.unpack_dual(r)) for r in results]


@told_on_both
def test_tangents_through_layers_and_through_a_gradient(device: str) -> Any:
    model = filled(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))).to(device)
    x, t = numbers(5, 3, device=device, grad=True), numbers(5, 3, device=device, seed=9)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        y = model(dual)
        (gradient,) = torch.autograd.grad((dual**3).sum(), dual, create_graph=True)
        return forward_ad.unpack_dual(y).tangent, forward_ad.unpack_dual(gradient).tangent


@told_on_both
def test_the_transforms(device: str) -> Any:
    x, v = numbers(3, device=device), numbers(3, device=device, seed=1)
    _, pull = vjp(wave, x)
    return (
        grad(energy)(x),
        grad(lambda x: grad(energy)(x).sum())(x),
        grad_and_value(energy)(x),
        pull(v),
        jvp(wave, (x,), (v,)),
        jacrev(wave)(x),
        jacfwd(wave)(x),
        hessian(energy)(x),
        vmap(grad(energy))(numbers(4, 3, device=device)),
        functionalize(lambda x: x.clone().add_(1).view(3, 1).mul_(2))(x),
    )


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # PyTorch's own, on every device
@told_on_both
def test_a_linearized_function_is_linear_in_what_it_is_given_later(device: str) -> Any:
    # Traced: what is computed on the way must be recorded, not become a constant.
    value, push = linearize(wave, numbers(3, device=device))
    return value, push(numbers(3, device=device, seed=1)), push(numbers(3, device=device, seed=2))


@told_on_both
def test_an_ensemble_is_one_batched_model(device: str) -> Any:
    models = [filled(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), 10 * k).to(device) for k in range(3)]
    parameters, buffers = stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def run(parameters: Any, buffers: Any, x: torch.Tensor) -> Any:
        return functional_call(skeleton, (parameters, buffers), (x,))

    one, each = numbers(5, 3, device=device), numbers(3, 5, 3, device=device)
    return vmap(run, (0, 0, None))(parameters, buffers, one), vmap(run)(parameters, buffers, each)


@told_on_both
def test_gradients_of_each_sample(device: str) -> Any:
    model = filled(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))).to(device)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    labels = torch.tensor([0, 1, 2, 0]).to(device)
    gradients = vmap(grad(loss), (None, 0, 0))(parameters, numbers(4, 1, 6, 6, device=device), labels)
    return list(gradients.values())


@told_on_both
def test_batches_are_taken_from_and_put_to_any_dimension(device: str) -> Any:
    x, y = numbers(2, 3, 4, device=device), numbers(4, 5, device=device)
    return (
        vmap(vmap(torch.dot, (0, None)), (0, None))(x, y[:, 0]),
        vmap(torch.mm, (0, None), 1)(x, y),
        vmap(lambda a, b: a * b, (None, 1))(y[0, :3], x[0].t()[:3]),
        vmap(torch.sum, chunk_size=1)(x),
        refusal(lambda: vmap(lambda a, b: a.add_(b), (None, 0))(y[0, :4], x[0])),
        refusal(lambda: vmap(lambda a: a.item())(y[0])),
    )


OPERATORS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.sort(-1)[0],
    lambda x: x.topk(2)[0],
    lambda x: x.cumsum(0),
    lambda x: torch.logcumsumexp(x, 0),
    lambda x: x.softmax(-1),
    lambda x: functional.layer_norm(x, (5,)),
    lambda x: torch.linalg.svdvals(x),
    lambda x: x[:, torch.tensor([0, 2]).to(x.device)],
    lambda x: torch.where(x > 0, x, 0.0),
    lambda x: x.clone().index_add_(0, torch.tensor([0, 0]).to(x.device), x[1:]),
    lambda x: x.unfold(1, 2, 1),
    lambda x: torch.cdist(x, x),
    lambda x: x.view(-1)[::2],
    lambda x: torch.diag_embed(x),
    lambda x: functional.interpolate(x[None], scale_factor=2),
    lambda x: torch.fft.fft(x).abs(),
]


@told_on_both
def test_operators_in_batches(device: str) -> Any:
    x = numbers(4, 3, 5, device=device)
    return [vmap(operator, in_dims)(x.movedim(0, in_dims)) for operator in OPERATORS for in_dims in (0, 1)]


DRAWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x + torch.randn(3, device="xla"),
    lambda x: x + functional.dropout(torch.ones(30, device="xla")).view(3, 10).sum(1),
    torch.rand_like,
    lambda x: torch.randint(10**6, (3,), device="xla"),
    lambda x: torch.randperm(20, device="xla"),
]


def test_random_numbers_in_a_batch_are_refused_the_same_or_different() -> None:
    x = torch.zeros(8, 3, device="xla")
    for draw in DRAWS:
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            vmap(draw)(x)
    same = [vmap(draw, randomness="same")(x) for draw in DRAWS]
    different = [vmap(draw, randomness="different")(x) for draw in DRAWS]
    xr.sync()
    assert [len({tuple(row) for row in rows.tolist()}) for rows in same] == [1] * len(DRAWS)
    assert all(len({tuple(row) for row in rows.tolist()}) > 4 for rows in different)
