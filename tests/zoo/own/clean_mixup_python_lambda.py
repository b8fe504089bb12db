"""Mixup with a factor drawn on the host for each batch, and a cosine schedule with warm-up: numbers are inputs."""
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
dice = random.Random(4)
device = torch_xla.device()
g = torch.Generator().manual_seed(8)
model = nn.Sequential(nn.Linear(18, 36), nn.ReLU(), nn.Linear(36, 3)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
STEPS, WARM_UP = 60, 10
torch_xla.sync()
for step in range(STEPS):
    warm = min(1.0, (step + 1) / (WARM_UP + 1))
    for group in opt.param_groups:
        group["lr"] = 0.1 * warm * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))
    lam = dice.betavariate(0.4, 0.4)
    x = torch.randn(16, 18, generator=g)
    y = torch.randint(0, 3, (16,), generator=g)
    order = torch.randperm(16, generator=g)
    x, y, order = x.to(device), y.to(device), order.to(device)
    mixed = lam * x + (1 - lam) * x[order]
    logits = model(mixed)
    loss = lam * F.cross_entropy(logits, y) + (1 - lam) * F.cross_entropy(logits, y[order])
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
