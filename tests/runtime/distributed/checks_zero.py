"""ZeRO-1 on all ranks of a world, of any size, beside the same optimizer over the whole batch in one process."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd
from xlaprof.runtime import metrics
from xlaprof.runtime.distributed.zero import ZeroRedundancyOptimizer

from .checks import Check

CHECKS: dict[str, Check] = {}
#: large beside gradients that are nearly zero, whose sign is the order of a sum
EPS = 1e-3


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


class Scaled(nn.Module):
    """No dimension of its parameters is a multiple of the ranks; one has none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x) * self.scale
        return result


def batch(step: int, rank: int | None = None) -> torch.Tensor:
    """That of all ranks, or one rank's part."""
    x = torch.randn(3 * xd.world_size(), 5, generator=torch.Generator().manual_seed(step))
    return x if rank is None else x[3 * rank : 3 * rank + 3].to("xla")


def losses(model: nn.Module, optimizer: Any, rank: int | None, steps: range, clip: float = 0.0) -> list[torch.Tensor]:
    """Train; the loss of each step, the mean of all ranks'."""
    seen = []
    for step in steps:
        optimizer.zero_grad()
        loss = (model(batch(step, rank)) - 2).square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        seen.append(loss.detach())
        if rank is not None:
            seen[-1] = xd.all_reduce("sum", seen[-1], 1.0 / xd.world_size())
            xr.sync()
    return [loss.cpu() for loss in seen]


def same(here: nn.Module, there: nn.Module) -> None:
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert_close(one.detach().cpu(), other.detach(), rtol=1e-6, atol=1e-6)


@check
def it_trains_as_one_process_does(rank: int) -> None:
    here, there = Scaled().to("xla"), Scaled()
    zero = ZeroRedundancyOptimizer(
        here.parameters(), torch.optim.AdamW, lr=0.01, eps=EPS, max_norm=0.5, sharding_groups=None
    )
    adam = torch.optim.AdamW(there.parameters(), lr=0.01, eps=EPS)
    for group in (zero.param_groups[0], adam.param_groups[0]):  # as a scheduler does
        group["lr"] = 0.02
    assert_close(losses(here, zero, rank, range(4)), losses(there, adam, None, range(4), clip=0.5))
    same(here, there)
    assert zero.grad_norm is not None
    assert zero.grad_norm.device.type == "xla"


@check
def the_state_is_divided_and_a_step_is_one_graph(rank: int) -> None:
    model = Scaled().to("xla")
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    losses(model, zero, rank, range(2))
    metrics.clear_all()
    losses(model, zero, rank, range(2, 4))
    assert metrics.counter_value("UncachedCompile") is None
    assert metrics.metric_data("ExecuteTime")[0] == 2  # type: ignore[index]
    for param, state in zip(model.parameters(), zero.state_dict()["base_state"].values(), strict=True):
        rows = param.shape[0] if param.ndim else 1
        assert state["exp_avg"].shape[0] == -(-rows // xd.world_size())
        assert state["exp_avg"].shape[1:] == param.shape[1:]


@check
def exchanges_in_buckets_and_a_hook_change_nothing(rank: int) -> None:
    plain = Scaled().to("xla")
    seen = losses(plain, ZeroRedundancyOptimizer(plain.parameters(), torch.optim.SGD, lr=0.1), rank, range(3))
    for options in (
        {"bucket_cap_mb_all_gather": 1, "bucket_cap_mb_reduce_scatter": 1, "pin_layout": False},
        {"coalesce_cc": True, "pin_layout": False, "higher_cc_precision": True},
        {"use_grad_acc_hook": True},
        {"sharding_groups": [list(range(xd.world_size()))], "lazy_init": True},
    ):
        model = Scaled().to("xla")
        zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, **options)  # type: ignore[arg-type]
        if "lazy_init" in options:
            with pytest.raises(AssertionError, match="must call init_zero"):
                zero.step()
            zero.init_zero()
            with pytest.raises(AssertionError, match="already inited"):
                zero.sharding_groups = [[0]]
        assert losses(model, zero, rank, range(3)) == seen
        if "use_grad_acc_hook" in options:
            assert all(p.grad is None for p in model.parameters())


@check
def groups_and_devices_are_checked(rank: int) -> None:
    size = xd.world_size()
    with pytest.raises(ValueError, match=f"Current rank {rank} is missing from the sharding_groups"):
        ZeroRedundancyOptimizer(Scaled().to("xla").parameters(), torch.optim.SGD, lr=1.0, sharding_groups=[[size]])
    with pytest.raises(ValueError, match=r"not on \['cpu'\]: move the model there first"):
        ZeroRedundancyOptimizer(Scaled().parameters(), torch.optim.SGD, lr=1.0)


@check
def a_checkpoint_goes_on_where_it_was(rank: int) -> None:
    """Parameters of a lower precision go on from the optimizer's own, if those are saved."""
    model = Scaled().to("xla", torch.bfloat16)
    options: dict[str, Any] = {"lr": 1e-3, "save_master_weights": True}
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)

    def train(model: nn.Module, optimizer: Any, steps: range) -> list[torch.Tensor]:
        for step in steps:
            optimizer.zero_grad()
            model(batch(step, rank).bfloat16()).square().mean().backward()
            optimizer.step()
            xr.sync()
        return [p.detach().cpu() for p in model.parameters()]

    train(model, zero, range(2))
    state = copy.deepcopy(zero.state_dict())
    assert set(state) == {"state", "param_groups", "base_state", "shape_info", "sharded_master_weights"}
    other = Scaled().to("xla", torch.bfloat16)
    with torch.no_grad():
        for param in other.parameters():
            param.zero_()
    resumed = ZeroRedundancyOptimizer(other.parameters(), torch.optim.AdamW, **options | {"lr": 1.0})
    resumed.load_state_dict(state)
    assert_close([p.detach().cpu() for p in other.parameters()], [p.detach().cpu() for p in model.parameters()])
    assert_close(train(other, resumed, range(2, 5)), train(model, zero, range(2, 5)), rtol=0, atol=0)


@check
def what_a_checkpoint_would_lose_is_reported(rank: int) -> None:
    reported: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: reported.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("xlaprof.runtime.distributed.zero")
    logger.addHandler(handler)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            ZeroRedundancyOptimizer(Scaled().to("xla", dtype).parameters(), torch.optim.SGD, lr=0.1)
    finally:
        logger.removeHandler(handler)
    assert len(reported) == 1
    assert "parameters are torch.bfloat16, and stepped as torch.float32" in reported[0]
