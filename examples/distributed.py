"""Data-parallel training: each rank computes on its share of the batch, gradients are averaged inside the program.

    python examples/distributed.py            # two ranks, started by launch()
    torchrun --nproc-per-node 2 examples/distributed.py

Every rank prints the same losses; one process with the whole batch would print them too.
"""

from __future__ import annotations

import os

import torch
from torch import nn

import xlaprof.runtime as xr
from xlaprof.runtime import distributed as xd

BATCH, STEPS = 8, 5


def train(index: int) -> None:
    """One rank's part."""
    torch.manual_seed(index)  # each rank begins with parameters of its own...
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).to("xla")
    xd.broadcast_master_param(model)  # ...and goes on with rank 0's
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = BATCH // xd.world_size()
    for step in range(STEPS):
        x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(step))
        mine = x[xd.global_ordinal() * share :][:share].to("xla")
        optimizer.zero_grad()
        loss = (model(mine) - mine.sum(1, keepdim=True)).square().mean()
        loss.backward()
        xr.optimizer_step(optimizer)  # the average of all ranks' gradients, and the step
        mean = xd.all_reduce(xd.REDUCE_SUM, loss.detach(), scale=1 / xd.world_size())
        xr.sync()  # one program: forward, backward, exchange, step
        print(f"rank {xd.global_ordinal()} step {step}: {mean:.4f}", flush=True)


if __name__ == "__main__":
    xd.launch(train, nprocs=int(os.environ.get("NPROCS", "2")))
