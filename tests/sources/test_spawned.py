"""Ranks that a program starts by torch.multiprocessing: each records, and the report lays them beside each other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Forked

from xlaprof.cli import main
from xlaprof.log import read

FORKED = """
import sys
import torch.multiprocessing as mp
import xlaprof

def work(rank, answer):
    with xlaprof.Trace("mine"):
        pass
    if rank == answer:
        raise ValueError("planted")

if __name__ == "__main__":
    started = mp.start_processes
    with xlaprof.record("run.log", detail="full"):
        assert mp.start_processes is not started
        try:
            mp.start_processes(work, args=(int(sys.argv[1]),), nprocs=2, start_method="fork")
        except mp.ProcessRaisedException as error:
            print("planted: the program's" if "planted" in str(error) else error)
        mp.start_processes(work, args=(7,), start_method="fork")
        try:
            mp.start_processes(work, process=2)
        except TypeError as error:
            print(error)
    assert mp.start_processes is started
    mp.start_processes(work, args=(7,), nprocs=3, start_method="fork")
"""


@pytest.mark.parametrize("failing", [7, 1])
def test_each_rank_that_a_recorded_program_starts_has_a_log_of_its_own(tmp_path: Path, failing: int) -> None:
    done = Forked("-c", FORKED, str(failing), cwd=tmp_path).wait()
    assert done.returncode == 0, done.stderr
    assert ("planted: the program's" in done.stdout) == (failing == 1)
    assert "unexpected keyword argument 'process'" in done.stdout
    logs = sorted(path.name for path in tmp_path.glob("*.log"))
    assert logs == ["run.log", "run.rank0.log", "run.rank1.log"], "one process is no world, and no recording was on"
    for rank in (1,) if failing == 1 else (0, 1):  # torch ends the others of one that failed
        with read(tmp_path / f"run.rank{rank}.log") as log:
            header, *events = log
        assert (header.rank, header.world) == (rank, 2)  # type: ignore[union-attr]
        assert any(getattr(event, "text", "") == "mine" for event in events), "the program's scopes are in it"
        assert events[-1].error == ("ValueError" if rank == failing else "")  # type: ignore[union-attr]


DDP = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = torch.compile(DistributedDataParallel(Net(), bucket_cap_mb=2), backend="aot_eager", dynamic=False)
    for step in range(4):
        size = 16 if rank == 0 or step < 2 else 16 + step
        loss = model(torch.randn(size, 512)).square().mean()
        loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
def test_two_ranks_of_a_real_training_of_which_one_compiles_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 gets two more sizes than rank 0, in its last two steps; DDP's buckets make parts of a graph."""
    (tmp_path / "ddp.py").write_text(DDP)
    (tmp_path / "logs").mkdir()
    command = [sys.executable, "-m", "xlaprof", "run", "-o", "logs/run.log", "ddp.py", str(tmp_path / "store")]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"by design: its graph runs as \d parts, one for each bucket of 2 MiB", " ".join(done.stderr.split())
    )
    assert "graph_break" not in done.stderr
    assert "No findings" in done.stderr, "of rank 0"
    assert main(["report", str(tmp_path / "logs"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (net,) = (one for one in shown["functions"] if one["name"] == "Net.forward")
    zero, one = net["ranks"]
    assert (zero["graphs"], zero["again"], one["graphs"], one["again"]) == (1, 0, 3, 2)
    assert zero["parts"] == one["parts"] > 1
    assert net["graphs"] == [], "rank 0's graph is one of rank 1's"
    assert one["changes"] == ["shape of x: f32[16,512] -> f32[18,512]", "shape of x: f32[18,512] -> f32[19,512]"]
    wait = next(wait for wait in net["waits"] if (wait["ranks"], wait["of"]) == ([0], 1))
    assert (wait["place"]["code"], wait["together"]) == ("loss.backward()", True)
    assert 0.2 <= wait["seconds"] <= wait["compile_s"]
    kinds = {(found["kind"], tuple(row["rank"] for row in found["by"])) for found in shown["findings"]}
    assert kinds == {("recompile", (1,))}, "nothing that DDP does is a finding"


FSDP = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = Net()
    for part in (*model.blocks, model):
        fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
    model = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        model(torch.randn(8, 16)).square().mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
def test_what_fsdp_does_around_blocks_is_told_as_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "fsdp.py").write_text(FSDP)
    (tmp_path / "logs").mkdir()
    command = [sys.executable, "-m", "xlaprof", "run", "-o", "logs/run.log", "fsdp.py", str(tmp_path / "store")]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "by design: FSDP runs its hooks, which gather parameters and free them, outside of graphs" in said
    assert main(["report", str(tmp_path / "logs"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["findings"] == [], "nothing that FSDP does is a finding"
    assert [one["graphs"] for one in shown["functions"]] in ([], [[]]), "both ranks have the same graphs"
