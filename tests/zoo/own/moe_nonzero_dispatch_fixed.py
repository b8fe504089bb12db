"""Mixture of experts that gives each expert its tokens by nonzero and index_add, so each expert sees another number."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Experts(nn.Module):
    def __init__(self, d=8, n=2):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(n))

    def forward(self, x):
        prob = self.gate(x).softmax(-1)
        weight, choice = prob.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + expert(x) * (weight * (choice == i))[:, None]
        return out


class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.moe, self.head = nn.LayerNorm(d), Experts(d), nn.Linear(d, 3)

    def forward(self, x):
        return self.head(x + self.moe(self.norm(x)))


model = Block().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(4)
torch_xla.sync()
for step in range(6):
    x = torch.randn(12, 8, generator=g).to(device)
    y = torch.randint(0, 3, (12,), generator=g).to(device)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
