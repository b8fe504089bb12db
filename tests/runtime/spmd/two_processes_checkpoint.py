"""What ``test_four_devices.py`` runs in two processes: tensors over both are saved, and loaded otherwise laid out."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn

from xlaprof.runtime import distributed, spmd
from xlaprof.runtime.spmd.checkpoint import CheckpointManager, preemption


def model(axes: tuple[int | None, int | None], seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    made = nn.Linear(6, 4).to("xla")
    spmd.mark_sharding(made.weight, spmd.get_1d_mesh("data"), axes)
    return made


def main(index: int, folder: str) -> None:
    spmd.use_spmd()
    dist.init_process_group("xla", init_method="xla://")
    manager = CheckpointManager(folder, save_interval=2, max_to_keep=1)
    rows, columns = model((0, None), 0), model((None, 0), 1)
    for step in range(4):
        if step == 3 and index == 1:
            preemption._received(0, None)  # the signal comes to one of them, before an odd step
        manager.save_async(step, {"model": rows.state_dict(), "step": step})
    manager.join()
    state = {"model": columns.state_dict(), "step": 0}
    manager.restore(3, state)
    here = spmd.wrap_if_sharded(columns.weight).local_shards[0]
    equal = torch.equal(columns.weight.cpu(), rows.weight.cpu())
    distributed.rendezvous("loaded")
    print(
        f"rank {index}: steps {manager.all_steps()}, step {state['step']}, {here.shard_device} has columns "
        f"{here.indices[1].start} to {here.indices[1].stop}, equal {equal}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    distributed.launch(main, args=(sys.argv[1],), nprocs=2)
