"""Data parallelism by SPMD: one compilation, and the time of a step over 1, 2 and 4 devices.

    python benchmarks/spmd.py [--steps 30] [--batch 256] [--width 512]

Each number of devices is a process of its own (``CPU_NUM_DEVICES``). "step" is the wall time of an Adam step of an MLP
with the batch split over all devices, best of the steps; "host" the time of the thread that records and cuts, median;
"compiled" what was compiled after the second step (wanted: 0). Devices of the CPU share its cores: the step does not
get faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

DEVICES = (1, 2, 4)


def child(steps: int, batch: int, width: int) -> dict[str, float]:
    """What one process measures."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    import xlaprof.runtime as xr
    from xlaprof.runtime import spmd

    spmd.use_spmd()
    mesh = spmd.get_1d_mesh("data")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model.to("xla")
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(batch, width).to("xla"), torch.randint(0, 10, (batch,)).to("xla")
    spmd.mark_sharding(x, mesh, ("data", None))
    spmd.mark_sharding(y, mesh, ("data",))
    walls, hosts, losses = [], [], []
    warm = 0
    for step in range(steps):
        start, host = time.perf_counter(), time.thread_time()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        xr.sync()
        hosts.append(time.thread_time() - host)
        xr.wait_device_ops()
        walls.append(time.perf_counter() - start)
        losses.append(loss.detach())
        if step == 1:
            warm = xr.metrics.metric_data("CompileTime")[0]
    return {
        "step": min(walls) * 1e3,
        "host": statistics.median(hosts[2:]) * 1e3,
        "compiled": xr.metrics.metric_data("CompileTime")[0] - warm,
        "loss": losses[-1].item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.steps, args.batch, args.width)))
        return
    print("devices   step ms   host ms  compiled      loss")
    for devices in DEVICES:
        env = {**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)}
        command = [sys.executable, __file__, "--child"]
        for name in ("steps", "batch", "width"):
            command += [f"--{name}", str(getattr(args, name))]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{devices:7} {found['step']:9.1f} {found['host']:9.2f} {found['compiled']:9.0f} {found['loss']:9.5f}")


if __name__ == "__main__":
    main()
