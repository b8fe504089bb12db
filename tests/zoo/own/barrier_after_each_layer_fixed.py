"""A barrier after every layer, "to keep the graphs small"."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.ff = nn.Linear(d, d)

    def forward(self, x):
        return x + F.gelu(self.ff(self.norm(x)))


class Deep(nn.Module):
    def __init__(self, d=16, layers=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


model = Deep().to(device).eval()
g = torch.Generator().manual_seed(1)
total = torch.zeros((), device=device)
xm.mark_step()
with torch.no_grad():
    for request in range(12):
        x = torch.randn(8, 16, generator=g).to(device)
        total += model(x).mean()
        xm.mark_step()
print("mean", round(total.item() / 12, 4))
