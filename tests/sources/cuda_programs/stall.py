"""A training step, and 20 ms of Python in each turn that nothing waits for."""

import torch
from measured import measured, python
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(6))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
x = torch.randn(4096, 4096, device="cuda")


def train(turns, truth=None):
    for _ in range(turns):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        report(truth)


def report(truth):
    if truth is None:
        return
    with truth.timed("stalled"):
        python(20)  # <-- the stall


train(3)
with measured() as truth:
    train(40, truth)
