"""Learning rates that change from step to step: numbers are inputs of a graph, so no schedule compiles anything.

Except where a number becomes, or stops being, one that is part of the graph: 0, 1 or -1, as in PyTorch/XLA, or equal to
another number of the step (equal numbers share an input). Each test says how often that happens, and why.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from torch.optim import SGD, Adam, Optimizer, lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import xlaprof.runtime as xr

from .counting import counted
from .optimizing import assert_same, making, train

STEPS = 30

Schedule = Callable[[Optimizer], Any]

#: schedule -> graphs of SGD beyond the first two: learning rates of exactly 0 or 1, and the first that is neither
SCHEDULES: dict[str, tuple[Schedule, int]] = {
    "LambdaLR": (lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch), 0),
    "MultiplicativeLR": (lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.97), 0),
    "StepLR": (lambda o: lr_scheduler.StepLR(o, 4, 0.5), 0),
    "MultiStepLR": (lambda o: lr_scheduler.MultiStepLR(o, [3, 9, 20], 0.3), 0),
    "ConstantLR": (lambda o: lr_scheduler.ConstantLR(o, 0.5, 5), 0),
    "LinearLR": (lambda o: lr_scheduler.LinearLR(o, 0.1, 0.9, 20), 0),
    "ExponentialLR": (lambda o: lr_scheduler.ExponentialLR(o, 0.9), 0),
    "CosineAnnealingLR": (lambda o: lr_scheduler.CosineAnnealingLR(o, 12, eta_min=1e-4), 0),
    "CosineAnnealingWarmRestarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2), 0),
    "PolynomialLR": (lambda o: lr_scheduler.PolynomialLR(o, 25, 2.0), 1),  # the rate of its end is 0
    "CyclicLR": (lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.1, 6, cycle_momentum=False), 0),
    "OneCycleLR": (lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=STEPS + 1, cycle_momentum=False), 0),
    "ChainedScheduler": (
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(o, 0.1, 4), lr_scheduler.ExponentialLR(o, 0.95)], optimizer=o
        ),
        0,
    ),
    "SequentialLR": (
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.01, 1.0, 5), lr_scheduler.CosineAnnealingLR(o, 30)], [5]
        ),
        0,
    ),
    "SWALR": (lambda o: SWALR(o, swa_lr=0.01, anneal_epochs=8), 0),
}


def test_every_schedule_of_pytorch_is_here() -> None:
    public = {
        name
        for name, thing in vars(lr_scheduler).items()
        if inspect.isclass(thing) and issubclass(thing, lr_scheduler.LRScheduler) and not name.startswith("_")
    }
    assert public - {"LRScheduler"} == set(SCHEDULES) - {"SWALR"} | {"ReduceLROnPlateau"}


@pytest.mark.parametrize("optimizer", [SGD, pytest.param(Adam, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_the_cpus_parameters_and_compiles_nothing(name: str, optimizer: type[Optimizer]) -> None:
    schedule, graphs = SCHEDULES[name]
    kwargs = {"lr": 0.03, "weight_decay": 0.02}

    expected, _ = train(making(optimizer, kwargs, "cpu"), "cpu", STEPS, schedule=schedule)
    got, counts = train(making(optimizer, kwargs, "xla"), "xla", STEPS, schedule=schedule)

    assert_same(got, expected, rtol=1e-4)
    after = counts[2:]
    assert sum(cost.compiles for cost in after) <= graphs
    assert all((cost.runs, cost.reads) == (1, 0) for cost in after)


def test_cycling_momentum_and_betas_are_inputs_too() -> None:
    def one_cycle(optimizer: Optimizer) -> Any:
        return lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=13)

    for optimizer, kwargs in ((SGD, {"lr": 0.1, "momentum": 0.9}), (Adam, {"lr": 0.1})):
        expected, _ = train(making(optimizer, kwargs, "cpu"), "cpu", 12, schedule=one_cycle)
        got, counts = train(making(optimizer, kwargs, "xla"), "xla", 12, schedule=one_cycle)
        assert_same(got, expected, rtol=1e-4)
        assert sum(cost.compiles for cost in counts[2:]) == 0


def test_a_plateau_is_judged_by_one_read() -> None:
    def run(device: str) -> tuple[list[float], list[int], list[int]]:
        weight = nn.Parameter(torch.tensor([4.0, -3.0], device=device))
        optimizer = SGD([weight], lr=0.9)
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        rates, compiles, reads = [], [], []
        for _ in range(12):
            with counted() as cost:
                optimizer.zero_grad()
                loss = weight.abs().sum()
                loss.backward()
                optimizer.step()
                xr.sync()
                plateau.step(loss.detach())  # reads it
            rates.append(optimizer.param_groups[0]["lr"])
            compiles.append(cost.compiles)
            reads.append(cost.reads)
        return rates, compiles, reads

    rates, compiles, reads = run("xla")
    assert rates == run("cpu")[0]
    assert min(rates) < 0.9
    assert sum(compiles[1:]) == 0
    assert reads == [1] * 12


# -- clipping -----------------------------------------------------------------------------------------


def with_gradients(device: str) -> list[nn.Parameter]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(size)) for size in ((3, 4), (5,), ())]
    gradients = [torch.randn_like(p) * 3 for p in parameters]
    moved = [nn.Parameter(p.detach().to(device)) for p in parameters]
    for parameter, gradient in zip(moved, gradients, strict=True):
        parameter.grad = gradient.to(device)
    return moved


def test_gradients_are_clipped_by_norm_without_reading_any() -> None:
    kinds = (2.0, 1.0, 0.5, math.inf)
    expected, got = [], []
    for kind in kinds:
        plain = with_gradients("cpu")
        expected += [clip_grad_norm_(plain, 1.5, kind), *[p.grad for p in plain]]
        assert get_total_norm([p.grad for p in plain], kind) <= 1.5 * 1.001
    with counted() as cost:
        for kind in kinds:
            ours = with_gradients("xla")
            got += [clip_grad_norm_(ours, 1.5, kind, foreach=False), *[p.grad for p in ours]]
        xr.sync()
    assert (cost.runs, cost.reads) == (1, 0)
    assert not [name for name in cost if name.startswith("aten::") and cost[name]]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_a_norm_that_is_not_finite_is_an_error_where_asked_for() -> None:
    parameters = with_gradients("xla")
    with counted() as cost:
        clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert cost.reads == 1

    parameters[1].grad[2] = math.nan
    with pytest.raises(RuntimeError, match=r"total norm of order 2\.0 for gradients from `parameters` is non-finite"):
        clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)


def test_gradients_are_clipped_by_value() -> None:
    ours, plain = with_gradients("xla"), with_gradients("cpu")
    with counted() as cost:
        clip_grad_value_(ours, 0.7)
        xr.sync()
    clip_grad_value_(plain, 0.7)

    assert (cost.runs, cost.reads) == (1, 0)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def test_foreach_clipping_is_refused_as_on_every_device_pytorch_does_not_list() -> None:
    with pytest.raises(RuntimeError, match="foreach=True was passed, but can't use the foreach API on xla tensors"):
        clip_grad_norm_(with_gradients("xla"), 1.0, foreach=True)


# -- averaged weights ---------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [None, get_ema_multi_avg_fn(0.9)], ids=["mean", "ema"])
def test_averaged_weights_and_their_batch_norm(average: Any) -> None:
    def run(device: str) -> tuple[list[torch.Tensor], list[int]]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
        batches = [torch.randn(6, 3).to(device) for _ in range(2)]
        averaged = AveragedModel(network, multi_avg_fn=average, use_buffers=False)
        optimizer = SGD(network.parameters(), lr=0.05)
        compiles = []
        for step in range(7):
            with counted() as cost:
                optimizer.zero_grad()
                network(batches[step % 2]).square().mean().backward()
                optimizer.step()
                averaged.update_parameters(network)
                xr.sync()
            compiles.append(cost.compiles)
        update_bn(batches, averaged)
        return [value.cpu() for value in averaged.state_dict().values()], compiles

    got, compiles = run("xla")
    for a, b in zip(got, run("cpu")[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert compiles[4:] == [0, 0, 0]


def test_buffers_are_averaged_where_asked_for() -> None:
    def run(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = nn.BatchNorm1d(3).to(device)
        averaged = AveragedModel(network, use_buffers=True)
        for _ in range(3):
            network(torch.randn(4, 3).to(device))
            averaged.update_parameters(network)
            xr.sync()
        return [value.cpu().float() for value in averaged.state_dict().values()]

    assert_same(run("xla"), run("cpu"))
