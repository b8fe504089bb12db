"""What ``test_four_devices.py`` runs in two processes: one mesh over both, the same program in each."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import xlaprof.runtime as xr
from xlaprof.runtime import distributed, spmd
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.transfer import loader


def main(index: int) -> None:
    spmd.use_spmd()
    devices = spmd.global_runtime_device_count()
    mesh = spmd.get_1d_mesh("data")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to("xla")
    spmd.mark_sharding(model[0].weight, mesh, ("data", None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    mine = slice(4 * index, 4 * index + 4)
    specs = {"x": spmd.ShardingSpec(mesh, ("data", None), True), "y": spmd.ShardingSpec(mesh, ("data",), True)}
    batches = [{"x": x[mine], "y": y[mine]}] * 3
    for batch in loader.MpDeviceLoader(batches, tapes.tape().torch_device, input_sharding=specs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
    xr.sync()
    whole = batch["x"]
    ours = spmd.wrap_if_sharded(whole).local_shards[0]
    print(
        f"rank {index} of {distributed.world_size()}: {devices} devices, a batch of {list(whole.shape)}, "
        f"{ours.shard_device} holds rows {ours.indices[0].start} to {ours.indices[0].stop}, "
        f"equal {torch.equal(whole.cpu(), x)}, loss {loss.item():.4f}, weights {model[0].weight.sum().item():.4f}",
        flush=True,
    )


if __name__ == "__main__":
    distributed.launch(main, nprocs=2)
