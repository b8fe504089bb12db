"""One process, several devices, one compilation: a network split over a mesh of data and model axes.

    CPU_NUM_DEVICES=4 python examples/spmd.py

The batch is split over one axis, the layers over the other (by rows, then by columns, as Megatron does). Everything
else is as for one device: XLA inserts the communication.
"""

import torch
from torch import nn
from torch.nn import functional as F

import xlaprof.runtime as xr
from xlaprof.runtime import spmd


def main() -> None:
    spmd.use_spmd()
    devices = spmd.global_runtime_device_count()
    across = 2 if devices % 2 == 0 else 1
    mesh = spmd.Mesh(range(devices), (devices // across, across), ("data", "model"))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to("xla")
    spmd.mark_sharding(model[0].weight, mesh, ("model", None))
    spmd.mark_sharding(model[2].weight, mesh, (None, "model"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    x, y = torch.randn(64, 32).to("xla"), torch.randint(0, 8, (64,)).to("xla")
    spmd.mark_sharding(x, mesh, ("data", None))
    spmd.visualize_tensor_sharding(model[0].weight, use_color=False)

    warm = 0
    for step in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        xr.sync()
        if step % 5 == 0 or step == 19:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == 1:
            warm = xr.metrics.counter_value("UncachedCompile")

    print("the first layer lies as", spmd.get_sharding_spec(model[0].weight))
    for shard in spmd.wrap_if_sharded(model[0].weight.detach()).local_shards:
        print(f"  {shard.shard_device} holds {list(shard.data.shape)}, replica {shard.replica_id}")
    print(f"compiled after the second step: {xr.metrics.counter_value('UncachedCompile') - warm}")


if __name__ == "__main__":
    main()
