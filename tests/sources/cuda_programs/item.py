"""A training step that reads its loss in each turn, and then prepares the next batch on the host."""

import torch
from measured import measured
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
rows = torch.randn(2048, 4096)


def batch(turn):
    """On the host."""
    return (rows.roll(turn, 0) * 1.01).sin()


def train(turns, truth=None):
    losses = []
    for turn in range(turns):
        x = batch(turn).cuda()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(read(loss, truth))
    return losses


def read(loss, truth):
    if truth is None:
        return loss.item()
    with truth.timed("waited"):
        return loss.item()  # <-- the read


train(3)
with measured() as truth:
    train(60, truth)
