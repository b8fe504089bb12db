"""Stochastic depth decided by Python's random: each combination of blocks is a graph of its own."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
random.seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU())

    def forward(self, x):
        return x + self.f(x)


class Net(nn.Module):
    def __init__(self, depth=4, d=16, drop=0.4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head = nn.Linear(d, 2)
        self.drop = drop

    def forward(self, x):
        for block in self.blocks:
            keep = torch.tensor([0.3 + float(random.random() >= self.drop)]).to(device)
            x = x + keep * (block(x) - x)
        return self.head(x)


net = Net().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(14):
    x = torch.randn(8, 16, generator=g).to(device)
    opt.zero_grad(set_to_none=False)
    loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
