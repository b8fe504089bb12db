"""torch.compile(backend="openxla") with a branch on a tensor's value in forward."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Normaliser(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.enc = nn.Linear(d, 16)
        self.dec = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.tanh(self.enc(x))
        if h.mean() > 0:
            h = h - h.mean()
        return self.dec(h)


model = Normaliser().to(device).eval()
fast = torch.compile(model, backend="openxla")
g = torch.Generator().manual_seed(0)
outs = []
torch_xla.sync()
with torch.no_grad():
    for _ in range(6):
        outs.append(fast(torch.randn(8, 12, generator=g).to(device)))
        torch_xla.sync()
print("out", torch.stack(outs).cpu().shape)
