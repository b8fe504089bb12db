"""Gradient accumulation in one graph; ten micro-batches make groups of four, four and two."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
ACCUM = 4


def micro_batches(epoch):
    g = torch.Generator().manual_seed(epoch)
    return [(torch.randn(8, 10, generator=g), torch.randint(0, 3, (8,), generator=g)) for _ in range(10)]


def grouped(items, n):
    for start in range(0, len(items), n):
        yield items[start : start + n]


def optimizer_step(model, opt, group):
    for x, y in group:
        loss = F.cross_entropy(model(x.to(device)), y.to(device)) / len(group)
        loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()


model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 3)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
torch_xla.sync()
for epoch in range(3):
    for group in grouped(micro_batches(epoch), ACCUM):
        loss = optimizer_step(model, opt, group)
        torch_xla.sync()
print("loss", round(loss.item(), 4))
