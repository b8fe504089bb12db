"""A training step that keeps the device busy all the time."""

import torch
from measured import measured
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
x = torch.randn(4096, 4096, device="cuda")


def train(turns):
    for _ in range(turns):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


train(3)
with measured() as truth:
    train(60)
