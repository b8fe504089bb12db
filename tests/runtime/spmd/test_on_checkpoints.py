"""Checkpoints of tensors that lie over four devices: saved in parts, loaded into any other sharding, or none."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch import nn
from torch.testing import assert_close

import xlaprof.runtime as xr
from xlaprof.runtime import spmd as xs
from xlaprof.runtime.spmd.checkpoint import (
    CheckpointManager,
    SPMDLoadPlanner,
    SPMDSavePlanner,
    preemption,
    prime_optimizer,
    states,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is (disabled|unavailable)", "ignore:TypedStorage is deprecated"
)


def model(shape: tuple[int, int] | None = (1, 4)) -> nn.Sequential:
    """Of its two weights the one lies in parts, the other is replicated, explicitly."""
    made = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3)).to("xla")
    if shape is not None:
        mesh = xs.Mesh(range(4), shape)
        xs.mark_sharding(made[0].weight, mesh, (0, 1))
        xs.mark_sharding(made[2].weight, mesh, (None, None))
    return made


def values(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu() for name, value in module.state_dict().items()}


def save(state: Any, folder: Path, planner: Any = None) -> None:
    writer = dist_cp.FileSystemWriter(folder, per_thread_copy_ahead=0)
    dist_cp.save(state, storage_writer=writer, planner=planner, no_dist=True)


def load(state: Any, folder: Path, planner: Any = None) -> None:
    dist_cp.load(state, storage_reader=dist_cp.FileSystemReader(folder), planner=planner, no_dist=True)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [((1, 4), None), (None, (1, 4)), ((2, 2), (4, 1)), ((1, 4), (2, 2))],
    ids=["to none", "from none", "other tiles", "padded tiles"],
)
def test_what_was_saved_loads_into_another_sharding(saved: Any, loaded: Any, tmp_path: Path) -> None:
    one, other = model(saved), model(loaded)
    save(one.state_dict(), tmp_path, SPMDSavePlanner() if saved else None)
    load(other.state_dict(), tmp_path, SPMDLoadPlanner() if loaded else None)
    assert_close(values(other), values(one), rtol=0, atol=0)
    if loaded:
        assert "devices=" in xs.get_sharding_spec(other[0].weight)


def test_from_the_host_too(tmp_path: Path) -> None:
    one, other = model(), model((2, 2))
    there = states.sharded_cpu_state_dict({"model": one.state_dict()})
    assert isinstance(there["model"]["0.weight"], states.CpuShards)
    assert there["model"]["2.weight"].device.type == "cpu"
    save(there, tmp_path, SPMDSavePlanner())
    load({"model": other.state_dict()}, tmp_path, SPMDLoadPlanner())
    assert_close(values(other), values(one), rtol=0, atol=0)


def test_each_part_is_planned_once_and_the_rest_as_ever() -> None:
    for state in (model().state_dict(), states.sharded_cpu_state_dict(model().state_dict())):
        planner = SPMDSavePlanner()
        planner.set_up_planner(state, True)
        assert planner.is_coordinator
        assert set(planner.sharded_state_dict) == {"0.weight"}
        assert set(planner.unsharded_state_dict) == {"0.bias", "2.weight", "2.bias"}
        items = [item.index.fqn for item in planner.create_local_plan().items]
        assert sorted(items) == ["0.bias", *["0.weight"] * 4, "2.bias", "2.weight"]
    halves = model(None)
    xs.mark_sharding(halves[0].weight, xs.Mesh(range(4), (2, 2)), (0, None))  # each half on two devices
    planner = SPMDSavePlanner()
    planner.set_up_planner(halves.state_dict())
    plan = [item for item in planner.create_local_plan().items if item.index.fqn == "0.weight"]
    assert [tuple(item.tensor_data.chunk.sizes) for item in plan if item.tensor_data] == [(4, 10), (4, 10)]
    shards = xs.wrap_if_sharded(halves[0].weight).local_shards
    for item in plan:
        assert item.index.index is not None
        assert_close(planner.resolve_data(item), shards[item.index.index].data)
    with pytest.raises(AssertionError, match="already been processed"):
        planner.resolve_data(plan[0])


def test_a_tensor_changes_when_all_its_parts_are_there(tmp_path: Path) -> None:
    one = model()
    save(model(None).state_dict(), tmp_path)
    planner = SPMDLoadPlanner()
    planner.set_up_planner(one.state_dict(), dist_cp.FileSystemReader(tmp_path).read_metadata(), True)
    before = one[0].weight.detach().cpu()
    items = [item for item in planner.create_local_plan().items if item.dest_index.fqn == "0.weight"]
    assert len(items) == 4
    for item in items:
        assert_close(one[0].weight.detach().cpu(), before)
        part = planner.resolve_tensor(item)
        part += 1
        planner.commit_tensor(item, part)
    assert_close(one[0].weight.detach().cpu(), torch.ones_like(before))


def test_what_is_missing_or_of_another_shape_is_reported(tmp_path: Path) -> None:
    save({"0.bias": torch.ones(8), "0.weight": torch.ones(8, 9)}, tmp_path)
    state = model().state_dict()
    with pytest.raises(dist_cp.CheckpointException, match=r"Size mismatch between saved .*\[8, 9\].* for 0.weight"):
        load({"0.weight": state["0.weight"]}, tmp_path, SPMDLoadPlanner())
    other = xs.mark_sharding(torch.ones(8, device="xla"), xs.Mesh(range(4), (4,)), (0,))
    with pytest.raises(dist_cp.CheckpointException, match="Missing key in checkpoint state_dict: x"):
        load({"x": other.global_tensor}, tmp_path, SPMDLoadPlanner())


def test_an_optimizer_that_has_not_stepped_gets_its_state(tmp_path: Path) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(module.parameters(), lr=0.1)

    one, other = model(), model((4, 1))
    first, second = optimizer(one), prime_optimizer(optimizer(other))
    one(torch.randn(4, 10).to("xla")).square().mean().backward()
    first.step()
    xr.sync()
    save({"optimizer": first.state_dict(), "step": 7}, tmp_path, SPMDSavePlanner())
    state = {"optimizer": second.state_dict(), "step": 0}
    load(state, tmp_path, SPMDLoadPlanner())
    second.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
    assert state["step"] == 7
    for a, b in zip(first.state_dict()["state"].values(), second.state_dict()["state"].values(), strict=True):
        assert_close({k: v.cpu() for k, v in b.items()}, {k: v.cpu() for k, v in a.items()}, rtol=0, atol=0)
    assert "devices=" in xs.get_sharding_spec(second.state[other[0].weight]["exp_avg"])


def test_names_that_come_twice_are_refused() -> None:
    with pytest.raises(ValueError, match=r"duplicated flatten key a\.b"):
        states.flattened({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})


# -- the manager --------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", world_size=1, rank=0)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_steps_are_saved_in_turn_kept_and_restored(tmp_path: Path) -> None:
    manager = CheckpointManager(str(tmp_path), save_interval=10, max_to_keep=2, chkpt_on_preemption=False)
    one, other = model(), model((2, 2))
    assert manager.all_steps() == []
    assert not manager.save(3, one.state_dict())
    for step in (10, 20, 30, 10):  # the oldest goes, by time and not by number
        assert manager.save(step, one.state_dict())
    assert manager.all_steps() == [10, 30]
    (tmp_path / "no checkpoint").mkdir()
    again = CheckpointManager(str(tmp_path), save_interval=10, max_to_keep=2, chkpt_on_preemption=False)
    assert again.save(5, one.state_dict(), force=True)
    assert again.all_steps() == [5, 10]
    again.restore(5, other.state_dict())
    assert_close(values(other), values(one), rtol=0, atol=0)
    with pytest.raises(AssertionError, match=r"Cannot restore from untracked step 30. Valid steps are: \[5, 10\]"):
        again.restore(30, other.state_dict())


@pytest.mark.usefixtures("group")
def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    manager = CheckpointManager(str(tmp_path), save_interval=1, chkpt_on_preemption=False)
    one, other, go = model(), model(), threading.Event()
    before, write = values(one), manager._save
    manager._save = lambda *args: go.wait() and write(*args)  # type: ignore[assignment, method-assign]
    assert manager.save_async(1, one.state_dict())
    with torch.no_grad():
        one[0].weight.zero_()
    assert manager.all_steps() == []
    go.set()
    manager.join()
    assert manager.all_steps() == [1]
    manager.restore(1, other.state_dict())
    assert_close(values(other), before, rtol=0, atol=0)


@pytest.mark.usefixtures("group")
def test_what_goes_wrong_while_writing_is_raised(tmp_path: Path) -> None:
    manager = CheckpointManager(str(tmp_path), save_interval=1, chkpt_on_preemption=False)
    (tmp_path / "1").write_text("in the way")
    manager._delete = lambda step: None  # type: ignore[method-assign]
    manager.save_async(1, model().state_dict())
    with pytest.raises(RuntimeError, match=r"step 1 could not be saved to .*: rank 0: .*(exists|Not a directory)"):
        manager.join()
    manager.join()  # reported once


@pytest.mark.usefixtures("group")
def test_a_checkpoint_is_taken_when_the_machine_is_asked_for(tmp_path: Path) -> None:
    manager = CheckpointManager(str(tmp_path), save_interval=100)
    try:
        state = model().state_dict()
        assert not manager.save(1, state)
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.save(2, state)
        assert not manager.save(3, state)
        assert manager.all_steps() == [2]
    finally:
        preemption.deactivate()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with pytest.raises(RuntimeError, match="not watched for"):
        preemption.reached(4)


def test_a_manager_wants_a_group_and_numbers_that_make_sense(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="A process group is required"):
        CheckpointManager(str(tmp_path), save_interval=1)
