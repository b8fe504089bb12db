"""A few steps of an optimizer, on the CPU and on ``xla``: the parameters, and what each step cost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import xlaprof.runtime as xr

from .counting import Counts, counted

Model = Callable[[], nn.Module]


def small(bias: bool = True) -> nn.Module:
    """Two parameters, or one (Muon takes matrices only)."""
    return nn.Linear(4, 2, bias=bias)


def numbers(value: Any) -> Any:
    """``value`` with tensors of one element as Python numbers: what the CPU is given instead."""
    if isinstance(value, torch.Tensor):
        return value.item()
    if isinstance(value, tuple):
        return tuple(map(numbers, value))
    return value


def train(
    make: Callable[[Any], torch.optim.Optimizer],
    device: str,
    steps: int,
    model: Model = small,
    every_step: Callable[[int], object] = lambda step: None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
) -> tuple[list[torch.Tensor], list[Counts]]:
    """The parameters after ``steps`` steps, and what was counted in each (nothing on the CPU)."""
    torch.manual_seed(0)
    network = model()
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    network, x, y = network.to(device), x.to(device), y.to(device)
    optimizer = make(network.parameters())
    scheduler = schedule(optimizer) if schedule is not None else None

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(network(x), y)
        loss.backward()
        return loss

    counts = []
    xr.sync(wait=True)
    for step in range(steps):
        with counted() as cost:
            optimizer.step(closure)
            if scheduler is not None:
                scheduler.step()
            every_step(step)
            xr.sync(wait=True)
        counts.append(cost)
    return [p.detach().cpu() for p in network.parameters()], counts


def making(optimizer: type[torch.optim.Optimizer], kwargs: dict[str, Any], device: str) -> Callable[[Any], Any]:
    """A constructor over parameters. PyTorch has no capturable optimizers on the CPU: there it is the plain one."""
    kwargs = copy.deepcopy(kwargs)
    if device == "cpu" and kwargs.pop("capturable", False):
        kwargs = {name: numbers(value) for name, value in kwargs.items()}
    return lambda parameters: optimizer(parameters, **kwargs)


def assert_same(got: list[torch.Tensor], expected: list[torch.Tensor], rtol: float = 2e-5) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-6)
