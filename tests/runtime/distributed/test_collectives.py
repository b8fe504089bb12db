"""Collectives of two ranks: every rank gets what NumPy says, from inside the compiled program.

Starting ranks is dear, so two are started once, for all checks; each check is a test.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd
from xlaprof.runtime import metrics
from xlaprof.torch_xla.core.functions import SyncBatchNorm

from . import ranks
from .checks import run_all

WORLD = 2
CHECKS: dict[str, Callable[[int], None]] = {}
XLA = torch.device("xla")


def on_every_rank(check: Callable[[int], None]) -> Callable[[int], None]:
    """Run the function as ``check(rank)`` on each rank."""
    CHECKS[check.__name__] = check
    return check


def of(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Some values of a rank's, that the other can tell too."""
    return (torch.arange(6).reshape(2, 3) * (rank + 1) % 4).to(dtype)


BOTH = [of(0), of(1)]


# -- the operations -----------------------------------------------------------------------------------

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add,
    "mul": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
}


@on_every_rank
def reductions_of_every_dtype(rank: int) -> None:
    got, expected = [], []
    for dtype in (torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float64, torch.complex64):
        for kind, combine in REDUCTIONS.items():
            if (dtype.is_complex and kind not in ("sum", "mul")) or (dtype.is_floating_point and kind in ("and", "or")):
                continue
            got.append(xd.all_reduce(kind, of(rank, dtype).to(XLA)))
            expected.append(combine(of(0, dtype), of(1, dtype)))
    xr.sync()
    for one, other in zip(got, expected, strict=True):
        assert_close(one.cpu(), other)


@on_every_rank
def lists_are_reduced_in_place(rank: int) -> None:
    whole = of(rank).to(XLA)
    leaf = of(rank).to(XLA).requires_grad_()
    counts = torch.tensor([rank, 5]).to(XLA)
    tensors = [whole[1], leaf, counts]
    assert xd.all_reduce(xd.REDUCE_SUM, tensors, scale=0.5) is tensors
    sum_ = BOTH[0] + BOTH[1]
    assert_close(whole.cpu(), torch.stack([BOTH[rank][0], sum_[1] / 2]))
    assert_close(leaf.detach().cpu(), sum_ / 2)
    assert leaf.requires_grad
    assert_close(counts.cpu(), torch.tensor([0, 0]))  # 0.5 is 0 among whole numbers, as in PyTorch/XLA


@on_every_rank
def gathering(rank: int) -> None:
    x = of(rank).to(XLA)
    rows, columns = xd.all_gather(x), xd.all_gather(x, dim=-1, pin_layout=False)
    alone = xd.all_gather(x, groups=[[0], [1]])
    turned = xd.all_gather(x, groups=[[1, 0]])
    flags = xd.all_gather(x > 1)
    several = xd.all_gather([x, x[0]], pin_layout=False)
    out = torch.empty(4, 3, device=XLA)
    assert xd.all_gather(x, output=out) is out
    assert_close(rows.cpu(), torch.cat(BOTH))
    assert_close(columns.cpu(), torch.cat(BOTH, 1))
    assert_close(alone.cpu(), BOTH[rank])
    assert_close(turned.cpu(), torch.cat(BOTH[::-1]))
    assert_close(flags.cpu(), torch.cat(BOTH) > 1)
    assert_close([t.cpu() for t in several], [torch.cat(BOTH), torch.cat([b[0] for b in BOTH])])
    assert_close(out.cpu(), torch.cat(BOTH))
    assert_close([t.cpu() for t in xd.all_gather_bucketized([x, x])], [torch.cat(BOTH)] * 2)
    with pytest.raises(IndexError, match="Dimension out of range"):
        xd.all_gather(x, dim=2)
    with pytest.raises(RuntimeError, match="pin_layout=True is not yet supported"):
        xd.all_gather([x])


@on_every_rank
def scattering(rank: int) -> None:
    x = of(rank).to(XLA)
    mean, most = (xd.reduce_scatter(kind, x, scale, 0, WORLD) for kind, scale in (("sum", 0.5), ("max", 1.0)))
    out = [torch.zeros(1, 3, device=XLA), torch.zeros(2, 1, device=XLA)]
    xd.reduce_scatter("sum", [x], 1.0, 0, WORLD, output=out[:1])
    some = xd.reduce_scatter_bucketized("sum", [x, x], 1.0, 0, WORLD)
    mine = slice(rank, rank + 1)
    sum_ = (BOTH[0] + BOTH[1])[mine]
    assert_close(mean.cpu(), sum_ / 2)
    assert_close(most.cpu(), torch.maximum(*BOTH)[mine])
    assert_close([t.cpu() for t in (out[0], *some)], [sum_] * 3)
    with pytest.raises(RuntimeError, match=r"dimension 1 of a tensor of shape \[2, 3\] cannot be split into 2"):
        xd.reduce_scatter("sum", x, 1.0, 1, WORLD)
    with pytest.raises(ValueError, match="shard_count=3, but 2 ranks take part"):
        xd.reduce_scatter("sum", x, 1.0, 0, 3)


@on_every_rank
def moving(rank: int) -> None:
    x = of(rank).to(XLA)
    exchanged = xd.all_to_all(x, split_dimension=0, concat_dimension=1, split_count=WORLD)
    turned = xd.collective_permute(x, [[0, 1], [1, 0]])
    one_way = xd.collective_permute(x.bool(), [[0, 1]])
    assert_close(exchanged.cpu(), torch.cat([b[rank : rank + 1] for b in BOTH], 1))
    assert_close(turned.cpu(), BOTH[1 - rank])
    assert_close(one_way.cpu(), BOTH[0].bool() if rank == 1 else torch.zeros(2, 3, dtype=torch.bool))


@on_every_rank
def a_broadcast_keeps_every_bit(rank: int) -> None:
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-40]) if rank == 1 else torch.full((4,), float("nan"))
    tensors = [odd.to(XLA), torch.tensor([True, rank == 1]).to(XLA), torch.tensor(1j * rank).to(XLA)[None]]
    xd.collective_broadcast(tensors, root_ordinal=1)
    sent = tensors[0].cpu()
    assert np.array_equal(sent[:3].numpy(), [np.nan, -0.0, np.inf], equal_nan=True)
    assert np.signbit(sent[1].item())
    assert tensors[1].cpu().tolist() == [True, True]
    assert tensors[2].cpu().tolist() == [1j]


@on_every_rank
def arguments_are_checked(rank: int) -> None:
    x = of(rank).to(XLA)
    with pytest.raises(ValueError, match=r"groups=\[\[0, 1, 2\]\] has rank 2, of a world of 2"):
        xd.all_reduce("sum", x, groups=[[0, 1, 2]])
    with pytest.raises(ValueError, match="rank 0 twice"):
        xd.all_reduce("sum", x, groups=[[0, 0], [1]])
    with pytest.raises(ValueError, match=f"rank {rank} is in none of groups"):
        xd.all_reduce("sum", x, groups=[[1 - rank]])
    with pytest.raises(ValueError, match="reduce_type='mean' is none of"):
        xd.all_reduce("mean", x)
    with pytest.raises(RuntimeError, match="Input tensor is not an XLA tensor"):
        xd.all_reduce("sum", [torch.ones(2)])
    with pytest.raises(ValueError, match="0 is no source"):
        xd.collective_permute(x, [[0, 1], [0, 0]])


# -- in a program -------------------------------------------------------------------------------------


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))


def batch(step: int) -> torch.Tensor:
    """The batch of both ranks."""
    return torch.randn(2 * WORLD, 5, generator=torch.Generator().manual_seed(step))


@on_every_rank
def a_step_is_one_execution_with_its_collectives_inside(rank: int) -> None:
    one, alone = net().to(XLA), net()
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (one, alone)]
    for step in range(5):
        metrics.clear_all() if step == 3 else None
        x = batch(step)
        for model, optimizer, part in zip((one, alone), optimizers, (x[2 * rank :][:2].to(XLA), x), strict=True):
            optimizer.zero_grad()
            model(part).square().mean().backward()
            if model is one:
                xd.reduce_gradients(optimizer)
            optimizer.step()
        xr.sync()
    for a, b in zip(one.parameters(), alone.parameters(), strict=True):
        assert_close(a.detach().cpu(), b.detach(), rtol=1e-5, atol=1e-6)
    assert metrics.counter_value("UncachedCompile") is None
    assert metrics.metric_data("ExecuteTime")[0] == 2  # type: ignore[index]
    assert metrics.counter_value("xla::AllReduceInPlace") == 2


@on_every_rank
def gradients_in_buckets(rank: int) -> None:
    gradients = [torch.full((n,), float(rank), device=XLA) for n in (300_000, 10, 300_000)]
    metrics.clear_all()
    xd.all_reduce_bucketized_gradients(gradients, 0.5, None, True, bucket_cap_mb=2)
    assert metrics.counter_value("xla::AllReduceInPlace") == 2
    assert [g[-1].item() for g in gradients] == [0.5] * 3


@on_every_rank
def reads_in_the_middle(rank: int) -> None:
    total = xd.all_reduce("sum", of(rank).to(XLA)).sum()
    assert total.item() == sum(b.sum() for b in BOTH)
    twice = total * 2
    assert twice.item() == 2 * total.item()


@on_every_rank
def numbers_may_differ_between_ranks(rank: int) -> None:
    """The exchange must take place although one rank's compiler could tell its share: zero."""
    ones = torch.ones(4, dtype=torch.int32, device=XLA)
    a = xd.all_reduce("sum", ones * rank)
    b = xd.all_reduce("sum", torch.full((2,), rank, device=XLA)) * rank
    c = xd.all_reduce("max", torch.arange(8, device=XLA)[rank * 4 : rank * 4 + 4])
    mine = torch.zeros((), device=XLA)
    if rank == 0:
        mine += ones.sum()  # what only one rank records beside is its own business
    xr.sync()
    assert a.cpu().tolist() == [1] * 4
    assert b.cpu().tolist() == [rank] * 2
    assert c.cpu().tolist() == [4, 5, 6, 7]
    assert mine.item() == (4 if rank == 0 else 0)


@on_every_rank
def a_model_starts_from_rank_0(rank: int) -> None:
    torch.manual_seed(rank)
    model = nn.BatchNorm1d(3).to(XLA)
    with torch.no_grad():
        model.weight.fill_(rank + 1)
    xd.broadcast_master_param(model)
    assert model.weight.detach().cpu().tolist() == [1.0] * 3


# -- torch.distributed --------------------------------------------------------------------------------


@on_every_rank
def a_process_group_of_the_whole_world(rank: int) -> None:
    dist.init_process_group("xla", init_method="xla://")
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (rank, WORLD, "xla")
    assert isinstance(dist.group.WORLD, xd.ProcessGroupXla)


@on_every_rank
@pytest.mark.filterwarnings("ignore:`torch.distributed")
def collectives_of_torch_distributed(rank: int) -> None:
    x = of(rank).to(XLA)
    sum_, mean = x.clone(), x.clone()
    dist.all_reduce(sum_)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    parts = [torch.zeros(2, 3, device=XLA) for _ in range(WORLD)]
    dist.all_gather(parts, x)
    scalars = [torch.zeros((), device=XLA) for _ in range(WORLD)]
    dist.all_gather(scalars, x[1, 2])
    joined, stacked = torch.empty(4, 3, device=XLA), torch.empty(2, 2, 3, device=XLA)
    group = dist.group.WORLD
    assert group is not None
    group._allgather_base(joined, x)
    group._allgather_base(stacked, x)
    sent = x.clone()
    dist.broadcast(sent, 1)
    shard, row = torch.empty(1, 3, device=XLA), torch.empty(3, device=XLA)
    group._reduce_scatter_base(shard, x, dist.ReduceScatterOptions())
    dist.reduce_scatter(row, list(x))
    swapped = torch.empty_like(x)
    group.alltoall_base(swapped, x, [], [])
    rows = [torch.empty(3, device=XLA) for _ in range(WORLD)]
    dist.all_to_all(rows, list(x))
    both = BOTH[0] + BOTH[1]
    for got, expected in (
        (sum_, both),
        (mean, both / 2),
        (torch.stack(parts), torch.stack(BOTH)),
        (torch.stack(scalars), torch.stack([b[1, 2] for b in BOTH])),
        (joined, torch.cat(BOTH)),
        (stacked, torch.stack(BOTH)),
        (sent, BOTH[1]),
        (shard[0], both[rank]),
        (row, both[rank]),
        (swapped, torch.stack([b[rank] for b in BOTH])),
        (torch.stack(rows), torch.stack([b[rank] for b in BOTH])),
    ):
        assert_close(got.cpu(), expected)
    dist.barrier()


@on_every_rank
def from_and_to_one_rank(rank: int) -> None:
    x = of(rank).to(XLA)
    reduced = x.clone()
    dist.reduce(reduced, dst=1)
    assert_close(reduced.cpu(), BOTH[0] + BOTH[1] if rank == 1 else BOTH[0])
    gathered = [torch.empty(2, 3, device=XLA) for _ in range(WORLD)] if rank == 0 else None
    dist.gather(x, gathered, dst=0)
    if gathered:
        assert_close([g.cpu() for g in gathered], BOTH)
    part = torch.empty(3, device=XLA)
    dist.scatter(part, list(x) if rank == 1 else None, src=1)
    assert_close(part.cpu(), BOTH[1][rank])
    if rank == 0:
        dist.send(x * 2, 1)
    else:
        got = torch.zeros_like(x)
        dist.recv(got, 0)
        assert_close(got.cpu(), BOTH[0] * 2)


@on_every_rank
def what_is_not_there_says_so(rank: int) -> None:
    group = dist.group.WORLD
    assert group is not None
    x = of(rank).to(XLA)
    for name in ("allreduce_coalesced", "recv_anysource", "monitored_barrier"):
        with pytest.raises(NotImplementedError):
            getattr(group, name)(x)
    with pytest.raises(NotImplementedError, match="reduce op"):
        dist.all_reduce(x, dist.ReduceOp.BXOR)
    with pytest.raises(AssertionError, match="non-empty output_split_sizes"):
        group.alltoall_base(x, x, [1, 1], [1, 1])
    with pytest.raises(ValueError, match="are not compatible for all_gather_into_tensor"):
        group._allgather_base(torch.empty(5, device=XLA), x)


@on_every_rank
def sync_batch_norm_normalizes_over_both(rank: int) -> None:
    """As torch's over the whole batch: results, gradients (each loss depends on all inputs), running statistics."""
    whole, weights = torch.rand(8, 3, 2, generator=torch.Generator().manual_seed(1)) * 5, torch.arange(48.0)
    x, w = whole.requires_grad_(), weights.reshape(8, 3, 2)
    own = x.detach()[4 * rank :][:4].to(XLA).requires_grad_()
    here, there = SyncBatchNorm(3).to(XLA), nn.BatchNorm1d(3)
    (there(x) * w).sum().backward()
    (here(own) * w[4 * rank :][:4].to(XLA)).sum().backward()
    xr.sync()
    assert x.grad is not None
    assert own.grad is not None
    assert_close(own.grad.cpu(), x.grad[4 * rank :][:4], rtol=1e-4, atol=1e-3)
    assert_close(here.running_mean.cpu(), there.running_mean)
    assert_close(here.running_var.cpu(), there.running_var)
    assert_close(here.eval()(own).cpu(), there.eval()(x)[4 * rank :][:4], rtol=1e-4, atol=1e-4)


@on_every_rank
def functional_collectives(rank: int) -> None:
    x = of(rank).to(XLA)
    sum_ = functional.all_reduce(x, "sum", dist.group.WORLD)
    joined = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    shard = functional.reduce_scatter_tensor(x, "avg", 0, dist.group.WORLD)
    sent = torch.ops._c10d_functional.broadcast(x, 1, "default")
    both = BOTH[0] + BOTH[1]
    for got, expected in (
        (sum_ * 1, both),
        (joined * 1, torch.cat(BOTH)),
        (shard * 1, both[rank : rank + 1] / 2),
        (sent, BOTH[1]),
    ):
        assert_close(got.cpu(), expected)


@on_every_rank
def ddp_gets_the_gradients_of_ddp_with_gloo(rank: int) -> None:
    gloo = dist.new_group(backend="gloo")
    here = DistributedDataParallel(net().to(XLA), gradient_as_bucket_view=True)
    there = DistributedDataParallel(net(), process_group=gloo)
    for step in range(4):
        part = batch(step)[2 * rank :][:2]
        for model, x in ((here, part.to(XLA)), (there, part)):
            model.zero_grad()
            (model(x).square().mean() * (rank + 1)).backward()
        xr.sync()
        for a, b in zip(here.parameters(), there.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None  # noqa: PT018
            assert_close(a.grad.cpu(), b.grad, rtol=1e-6, atol=1e-6)


@on_every_rank
def the_group_can_be_left(rank: int) -> None:
    dist.destroy_process_group()
    assert not dist.is_initialized()


# -- the ranks ----------------------------------------------------------------------------------------


def everything(rank: int) -> dict[str, str]:
    """What went wrong in each check, on this rank."""
    return run_all(rank, CHECKS)


@pytest.fixture(scope="module")
def reported() -> list[dict[str, str]]:
    return ranks.run(everything, nprocs=WORLD)


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str, reported: list[dict[str, str]]) -> None:
    for rank in reported:
        assert rank.get(check, "not come to") == ""


def test_alone_nothing_is_exchanged() -> None:
    x = torch.arange(3.0, device="xla")
    assert xd.all_reduce("sum", x) is not x
    assert xd.all_reduce("sum", x).tolist() == [0, 1, 2]
    assert xd.all_gather(x).tolist() == [0, 1, 2]
    assert xd.reduce_scatter("sum", x, 0.5, 0, 1).tolist() == [0, 0.5, 1]
    assert xd.all_to_all(x, 0, 0, 1).tolist() == [0, 1, 2]
    xd.collective_broadcast([x])
    model = copy.deepcopy(net()).to("xla")
    model(torch.ones(1, 5, device="xla")).sum().backward()
    before = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    xd.reduce_gradients(torch.optim.SGD(model.parameters(), lr=0.1))
    assert_close([p.grad.cpu() for p in model.parameters() if p.grad is not None], before)


def test_alone_it_can_be_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")
    x = torch.arange(3.0, device="xla")
    metrics.clear_all()
    assert xd.all_reduce("sum", x, scale=2.0).tolist() == [0, 2, 4]
    xd.all_reduce("max", [x])
    assert x.tolist() == [0, 1, 2]
    assert metrics.counter_value("xla::AllReduce") == 1
    assert metrics.counter_value("xla::AllReduceInPlace") == 1
    assert xd.all_gather(x).tolist() == [0, 1, 2]
    assert xd.reduce_scatter("sum", x, 0.5, 0, 1).tolist() == [0, 0.5, 1]
    xd.collective_broadcast([x])
    assert x.tolist() == [0, 1, 2]


def test_dynamo_keeps_them_in_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_ALWAYS_ALLREDUCE", "1")

    def f(x: torch.Tensor) -> torch.Tensor:
        whole: torch.Tensor = xd.all_gather(xd.all_reduce("sum", x) * 2, dim=0)
        part: torch.Tensor = xd.reduce_scatter("sum", xd.all_to_all(whole, 0, 0, 1), 0.5, 0, 1)
        return part + 1

    assert torch.compile(f, backend="openxla", fullgraph=True)(torch.arange(3.0, device="xla")).tolist() == [1, 2, 3]
