"""Whole programs of several ranks: the example, groups of four ranks, torch.compile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd

from . import ranks

EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed.py"


def losses(nprocs: int) -> dict[int, list[float]]:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        env={"NPROCS": str(nprocs), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    reported: dict[int, list[float]] = {}
    for rank, loss in re.findall(r"rank (\d) step \d: (.*)", done.stdout):
        reported.setdefault(int(rank), []).append(float(loss))
    return reported


@pytest.mark.slow
def test_the_example_trains_as_one_process_does() -> None:
    alone, together = losses(1), losses(2)
    assert len(alone[0]) == 5
    assert together == {0: alone[0], 1: alone[0]}


def test_the_page_does_what_it_says() -> None:
    page = EXAMPLE.parents[1] / "docs" / "collectives.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(page), "exec"), {"__name__": "__main__"})


def of(rank: int) -> torch.Tensor:
    return torch.arange(4.0) + 10 * rank


def in_groups(rank: int) -> None:
    x = of(rank).to("xla")
    pair, other = [rank & 2, rank & 2 | 1], [rank & 1, rank & 1 | 2]
    sum_ = xd.all_reduce("sum", x, groups=[[0, 1], [2, 3]])
    joined = xd.all_gather(x, groups=[[0, 2], [1, 3]])
    part = xd.reduce_scatter("sum", x, 0.5, 0, 2, groups=[[0, 1], [2, 3]])
    exchanged = xd.all_to_all(x, 0, 0, 2, groups=[[0, 1], [2, 3]])
    most = xd.all_reduce("max", x)
    sent = [x.clone()]
    xd.collective_broadcast(sent, 1, groups=[[0, 1], [2, 3]])
    xr.sync()
    both = of(pair[0]) + of(pair[1])
    half = slice(2 * (rank & 1), 2 * (rank & 1) + 2)
    assert_close(sum_.cpu(), both)
    assert_close(joined.cpu(), torch.cat([of(r) for r in other]))
    assert_close(part.cpu(), both[half] / 2)
    assert_close(exchanged.cpu(), torch.cat([of(r)[half] for r in pair]))
    assert_close(most.cpu(), of(3))
    assert_close(sent[0].cpu(), of(pair[1]))

    dist.init_process_group("xla", init_method="xla://")
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]
    alone = x.clone()
    if rank > 1:  # the others do not take part
        dist.all_reduce(alone, group=mine)
        xr.sync()
        assert_close(alone.cpu(), both)
    near, far = x.clone(), x.clone()
    dist.all_reduce(near, group=mine)  # next to one of everybody's
    dist.all_reduce(far)
    gathered = [torch.empty_like(x) for _ in pair]
    dist.all_gather(gathered, x, group=mine)
    xr.sync()
    assert_close(near.cpu(), both)
    assert_close(far.cpu(), sum(of(r) for r in range(4)))
    assert_close([g.cpu() for g in gathered], [of(r) for r in pair])
    if rank == 3:
        dist.send(x + 1, 0)
    if rank == 0:
        got = torch.empty_like(x)
        dist.recv(got, 3)
        assert_close(got.cpu(), of(3) + 1)
    dist.barrier()


@pytest.mark.slow
def test_groups_among_four_ranks() -> None:
    ranks.run(in_groups, nprocs=4)


@pytest.mark.parametrize(
    ("ranks", "mesh"),
    [
        ([4, 5, 6, 7], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        ([1, 5, 9], [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]),
    ],
)
def test_a_group_is_a_side_of_a_rectangle(ranks: list[int], mesh: list[list[int]]) -> None:
    assert xd.backend.infer_mesh(ranks, 12) == mesh


@pytest.mark.parametrize("ranks", [[4, 5, 6], [0, 1, 2, 3, 4], [1, 5], [4, 7, 10], [1, 5, 10]])
def test_or_it_is_none(ranks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"Given .*slice"):
        xd.backend.infer_mesh(ranks, 12)


def compiled(rank: int) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        total = xd.all_reduce("sum", x) + 3.0
        return torch.ops._c10d_functional.broadcast(total.cos() * x, 1, "default")

    x = torch.tensor([1.0 + rank]).to("xla")
    assert_close(torch.compile(step, backend="openxla")(x).cpu(), torch.tensor([6.0]).cos() * 2)
    with xr.eager_mode_context(True):
        both = [torch.tensor([rank, 1.0]).to("xla"), torch.tensor([rank]).to("xla")]
        xd.all_reduce("sum", both)
        assert both[0].tolist() == [1.0, 2.0]
        assert both[1].tolist() == [1]


@pytest.mark.slow
def test_in_compiled_functions_and_in_eager_mode() -> None:
    ranks.run(compiled)
