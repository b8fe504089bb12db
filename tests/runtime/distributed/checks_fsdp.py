"""Fully sharded training on all ranks of a world, of any size, beside the same training in one process."""

from __future__ import annotations

import functools
import gc
import math
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd
from xlaprof.runtime import metrics
from xlaprof.runtime.distributed import fsdp
from xlaprof.runtime.distributed.fsdp import XlaFullyShardedDataParallel as Wrapped
from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.pytorch import wrapping
from xlaprof.torch_xla.distributed.fsdp import checkpoint_module

from .checks import Check

CHECKS: dict[str, Check] = {}
EPS = 1e-3  # as in checks_zero


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def net(width: int = 9) -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Linear(5, width), nn.Tanh(), nn.Sequential(nn.Linear(width, width), nn.ReLU()), nn.Linear(width, 3)
    )


def batch(step: int, rank: int | None = None, columns: int = 5) -> torch.Tensor:
    x = torch.randn(3 * xd.world_size(), columns, generator=torch.Generator().manual_seed(step))
    return x if rank is None else x[3 * rank : 3 * rank + 3].to("xla")


def train(model: Any, optimizer: Any, rank: int | None, steps: range, clip: float = 0.0) -> list[torch.Tensor]:
    """Train; loss and norm of each step, the losses as means of all ranks'."""
    seen = []
    for step in steps:
        optimizer.zero_grad()
        loss = (model(batch(step, rank)) - 1).square().mean()
        loss.backward()
        norm = torch.zeros(())
        if clip:
            ours = isinstance(model, Wrapped)
            norm = model.clip_grad_norm_(clip) if ours else nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if rank is not None:
            loss = xd.all_reduce("sum", loss.detach(), 1.0 / xd.world_size())
            xr.sync()
        seen += [loss.detach(), norm]
    return [value.cpu() for value in seen]


def consolidated(model: Wrapped) -> dict[str, torch.Tensor]:
    states = xd.exchange_objects("state", {name: value.cpu() for name, value in model.state_dict().items()})
    return dict(fsdp.consolidate_sharded_state_dicts(states, model.get_shard_metadata()))


def close(one: Any, other: Any) -> None:
    assert_close(one, other, rtol=1e-5, atol=1e-6)


def compare(model: Wrapped, rank: int, plain: nn.Module | None = None, clip: float = 0.3) -> None:
    """Training ``model`` is training ``plain``: losses, norms, and the parameters in the end."""
    plain = plain or net()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, eps=EPS) for m in (model, plain)]
    close(train(model, optimizers[0], rank, range(3), clip), train(plain, optimizers[1], None, range(3), clip))
    close(consolidated(model), dict(plain.state_dict()))


@check
def it_trains_as_one_process_does(rank: int) -> None:
    compare(Wrapped(net()), rank)


@check
def gradients_are_those_of_one_process_each_rank_its_part(rank: int) -> None:
    model, plain = Wrapped(net()), net()
    (model(batch(0, rank)) - 1).square().mean().backward()
    (plain(batch(0)) - 1).square().mean().backward()
    for (name, shard), param in zip(model.get_original_names_and_sharded_parameters(), plain.parameters(), strict=True):
        assert name in dict(plain.named_parameters())
        assert param.grad is not None
        assert shard.grad is not None
        whole = torch.cat([g.cpu() for g in xd.exchange_objects("grad", shard.grad.cpu())])
        assert_close(whole[: param.numel()].view(param.shape), param.grad, rtol=1e-6, atol=1e-7)


@check
def inner_wrappers_gather_again_and_compute_again(rank: int) -> None:
    model = net()
    model[2] = Wrapped(checkpoint_module(model[2]))
    model[3] = Wrapped(model[3], flatten_parameters=True)
    compare(Wrapped(model, disable_reshard_on_root=False), rank)


@check
def a_step_is_one_graph_and_parameters_shrink(rank: int) -> None:
    size, width = xd.world_size(), 256
    model = Wrapped(net(width), auto_wrap_policy=wrapping.always_wrap_policy, flatten_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, rank, range(2))
    metrics.clear_all()
    train(model, optimizer, rank, range(2, 4), clip=0.1)
    assert metrics.metric_data("ExecuteTime")[0] == 2  # type: ignore[index]
    metrics.clear_all()
    train(model, optimizer, rank, range(4, 6), clip=0.1)
    assert metrics.counter_value("UncachedCompile") is None

    whole = sum(p.numel() for p in net(width).parameters())
    padding = 128 * size * 5
    assert sum(p.numel() for p in model.parameters()) <= (whole + padding) // size
    gc.collect()
    used = xr.memory_info().bytes_in_use
    del model, optimizer
    gc.collect()
    xr.sync()
    mine = used - xr.memory_info().bytes_in_use
    assert mine <= 4 * 4 * (whole + padding) / size, "parameters, gradients and two states, of this rank's part"


@check
def what_is_gathered_is_gone_between_passes(rank: int) -> None:
    model = Wrapped(net(64))
    x = batch(0, rank)
    xr.sync()
    before = xr.memory_info().bytes_in_use
    with torch.no_grad():
        result = model(x)
    assert not model.has_full_params
    xr.sync()
    gc.collect()
    assert xr.memory_info().bytes_in_use - before <= 1024, "the output, and not the parameters"
    assert result.shape == (3, 3)


@check
def settings_change_nothing_of_what_is_computed(rank: int) -> None:
    for options in (
        {"shard_param_on_dim_0": True},
        {"optimization_barrier_in_forward": False, "optimization_barrier_in_backward": False},
        {"reduce_scatter_bucket_size_mb": 1, "coalesce_all_gather_ops": True, "mark_step_on_finalization": True},
    ):
        model = net()
        model[2] = Wrapped(model[2], **options)
        compare(Wrapped(model, **options), rank)


@check
def lower_precision_computes_so_and_keeps_float32(rank: int) -> None:
    seen: list[Any] = []

    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(5, affine=False)
            self.net = net()

        def forward(self, x: torch.Tensor, *, ids: torch.Tensor) -> Any:
            seen.append((x.dtype, ids.dtype, self.net[0].weight.dtype, self.norm.running_mean.dtype))
            return {"y": (self.net(x),)}

    model = Wrapped(Told(), compute_dtype=torch.bfloat16, buffer_dtype=torch.float32, fp32_reduce_scatter=True)
    result = model(batch(0, rank), ids=torch.tensor([1]).to("xla"))["y"][0]
    assert seen == [(torch.bfloat16, torch.int64, torch.bfloat16, torch.float32)]
    assert result.dtype is torch.bfloat16
    (result - 1).square().mean().backward()
    plain = net()
    (plain(batch(0)) - 1).square().mean().backward()
    gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    assert {g.dtype for g in gradients} == {torch.float32}
    theirs = [p.grad for p in plain.parameters()]
    assert len(gradients) == len(theirs)
    whole = [torch.cat(g) for g in zip(*xd.exchange_objects("g", gradients), strict=True)]
    for one, other in zip(whole, theirs, strict=True):
        assert other is not None
        assert_close(one[: other.numel()].view_as(other), other, rtol=0.1, atol=0.02)


@check
def gradients_add_up_without_exchanges_until_one_is_asked_for(rank: int) -> None:
    for nested in (False, True):
        inner = net()
        if nested:
            inner[2] = Wrapped(inner[2])
        model, plain = Wrapped(inner), net()
        with model.no_sync():
            model(batch(0, rank)).square().mean().backward()
        assert all(p.grad is None for p in model.parameters())
        for step in (1, 2):  # shards add up too
            model(batch(step, rank)).square().mean().backward()
        for step in range(3):
            plain(batch(step)).square().mean().backward()
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
        for optimizer in optimizers:
            optimizer.step()
        close(consolidated(model), dict(plain.state_dict()))


@check
def what_is_shared_frozen_or_unused_stays_so(rank: int) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.one, self.two, self.three = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
            self.two.weight = self.one.weight
            self.one.bias.requires_grad_(False)
            self.unused = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.three(self.two(self.one(x).tanh()))
            return result

    for flat in (False, True):
        model, plain = Wrapped(Tied(), flatten_parameters=flat), Tied()
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, eps=EPS, weight_decay=0.0) for m in (model, plain)]
        close(train(model, optimizers[0], rank, range(3)), train(plain, optimizers[1], None, range(3)))
        state = {**plain.state_dict()}
        ours = consolidated(model)
        del state["two.weight"]  # which is one.weight
        close({name: ours[name] for name in state}, state)


@check
def recurrent_modules_see_their_parameters(rank: int) -> None:
    torch.manual_seed(5)
    plain = nn.LSTM(5, 4)
    torch.manual_seed(5)
    model = Wrapped(nn.LSTM(5, 4))
    for step in range(2):
        ours, theirs = model(batch(step, rank)[:, None])[0], plain(batch(step)[3 * rank :][:3, None])[0]
        close(ours.detach().cpu(), theirs.detach())


@check
def a_policy_chooses_what_is_wrapped(rank: int) -> None:
    policy = functools.partial(wrapping.size_based_auto_wrap_policy, min_num_params=60)
    model = Wrapped(
        net(), auto_wrap_policy=policy, auto_wrapper_callable=lambda m, **more: Wrapped(checkpoint_module(m), **more)
    )
    wrapped = [name for name, m in model.named_modules() if isinstance(m, Wrapped)]
    assert [name.replace("_fsdp_wrapped_module.", "").replace("_fpw_module.", "") for name in wrapped] == ["", "2.0"]
    compare(model, rank)
    by_type = functools.partial(wrapping.transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})
    assert sum(isinstance(m, Wrapped) for m in Wrapped(net(), auto_wrap_policy=by_type).modules()) == 4
    with pytest.raises(ValueError, match="to NOT be FullyShardedDataParallel"):
        Wrapped(nn.Sequential(Wrapped(nn.Linear(2, 2))), auto_wrap_policy=by_type)


@check
def modules_without_values_are_made(rank: int) -> None:
    class Counted(nn.Linear):
        def reset_parameters(self) -> None:  # the device's random numbers are not the host's
            for param in self.parameters():
                param.data.copy_(torch.arange(param.numel()).view(param.shape) / param.numel() - 0.4)

    def module(device: str) -> nn.Module:
        return nn.Sequential(Counted(5, 6, device=device), nn.Tanh(), Counted(6, 3, device=device))

    by_type = functools.partial(wrapping.transformer_auto_wrap_policy, transformer_layer_cls={Counted})
    compare(Wrapped(module("meta"), auto_wrap_policy=by_type), rank, module("cpu"))
    with pytest.raises(RuntimeError, match=r"MultiheadAttention has parameters on the meta device and no reset_para"):
        Wrapped(nn.MultiheadAttention(4, 2, device="meta"))

    def ones(module: nn.Module) -> None:
        module.to_empty(device="cpu")
        for param in module.parameters():
            nn.init.ones_(param)

    model = Wrapped(nn.Linear(2, 2, device="meta"), param_init_fn=ones)
    assert [v.tolist() for v in consolidated(model).values()] == [[[1.0, 1.0]] * 2, [1.0, 1.0]]


@check
def a_module_that_only_one_path_uses(rank: int) -> None:
    """One inner module's output gets no gradient: its backward pass never begins."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> Any:
            return self.fc1(x), self.fc2(x)

    model = Wrapped(Two(), auto_wrap_policy=wrapping.always_wrap_policy)
    first, _ = model(torch.zeros(16, 16, device="xla"))
    first.sum().backward()
    xr.sync()
    assert not any(m.has_full_params for m in model.modules() if isinstance(m, Wrapped) and m.sharded_params)
    assert [p.grad is None for p in model.parameters()] == [False, False, True, True]


@check
def values_that_are_loaded_are_used(rank: int) -> None:
    model, other = Wrapped(net()), Wrapped(net(), flatten_parameters=True)
    with torch.no_grad():
        for m in (model, other):
            for param in m.parameters():
                param.mul_(1.0 + rank)  # this rank's part
    for one in (model, other):
        state = {name: value.cpu() for name, value in one.state_dict().items()}
        fresh = Wrapped(net(), flatten_parameters=one.flatten_parameters)
        fresh(batch(0, rank))  # its parameters stay for a backward pass that does not come
        fresh.load_state_dict(state)
        close(fresh(batch(1, rank)).detach().cpu(), one(batch(1, rank)).detach().cpu())


@check
def norms_over_all_ranks_and_of_nothing(rank: int) -> None:
    model, plain = Wrapped(net()), net()
    nothing = model.clip_grad_norm_(1.0)
    assert (nothing.device.type, nothing.item()) == ("xla", 0.0)
    (model(batch(0, rank)) - 1).square().mean().backward()
    (plain(batch(0)) - 1).square().mean().backward()
    for kind in (math.inf, 1.0, 2.0):
        theirs = nn.utils.get_total_norm([p.grad for p in plain.parameters() if p.grad is not None], kind)
        close(model.clip_grad_norm_(1e9, kind).cpu(), theirs)


@check
def mistakes_are_reported(rank: int) -> None:
    with pytest.raises(RuntimeError, match="already wrapped with FSDP"):
        Wrapped(Wrapped(nn.Linear(2, 2)))
    with pytest.raises(RuntimeError, match="must define a `forward` method"):
        Wrapped(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(TypeError, match=r"only fp32 parameters are supported, not torch.float16"):
        Wrapped(nn.Linear(2, 2).half())
    with pytest.raises(ValueError, match="compute_dtype must be one of"):
        Wrapped(nn.Linear(2, 2), compute_dtype=torch.float64)
    with pytest.raises(ValueError, match="sharding_rank and sharding_world_size must be provided"):
        Wrapped(nn.Linear(2, 2), sharding_groups=[[0]])
    with pytest.raises(TypeError, match="unexpected keyword argument 'reshard'"):
        Wrapped(nn.Linear(2, 2), reshard=True)
    with pytest.raises(NotImplementedError, match="_debug_dummy_forward_pass"):
        Wrapped(nn.Linear(2, 2), _debug_dummy_forward_pass=True)


@check
def a_rank_that_keeps_other_results_exchanges_in_the_same_order(rank: int) -> None:
    """It compiles the graph again, with more results, while the others run what they have."""
    model, plain = Wrapped(net()), net()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
    seen, kept = [], []
    for step in range(4):
        losses = []
        for one, optimizer, x in zip((model, plain), optimizers, (batch(step, rank), batch(step)), strict=True):
            optimizer.zero_grad()
            errors = (one(x) - 1).square()
            losses.append(errors.mean())
            losses[-1].backward()
            optimizer.step()
            if one is model and rank == 1 and step >= 2:
                kept.append(errors.detach())
            del errors
        losses[0] = xd.all_reduce("sum", losses[0].detach(), 1.0 / xd.world_size())
        xr.sync()
        seen.append([loss.detach().cpu() for loss in losses])
    close([ours for ours, _ in seen], [theirs for _, theirs in seen])


@check
def a_look_at_where_a_rank_is_holds_nothing(rank: int) -> None:
    """What lives decides what a graph is; so the heartbeat may not keep the frames it has looked at."""
    link = world.link()
    assert link is not None
    held: list[Any] = []

    def working(looks: threading.Thread) -> None:
        x = torch.ones(2, device="xla")
        held.append(weakref.ref(x._storage.tape.torch_device and x))
        looks.start()
        looks.join()

    gc.disable()
    try:
        working(threading.Thread(target=link._look, args=(0.0, 1.0)))
        assert held[0]() is None
    finally:
        gc.enable()
