"""torch.compile(backend="openxla", dynamic=False) serving requests of different batch sizes."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


model = Scorer().to(device).eval()
fast = torch.compile(model, backend="openxla", dynamic=False)
g = torch.Generator().manual_seed(3)
scores = []
torch_xla.sync()
with torch.no_grad():
    for rows in [8, 8, 8, 5, 8, 3, 8, 5]:
        x = nn.functional.pad(torch.randn(rows, 10, generator=g), (0, 0, 0, 8 - rows)).to(device)
        scores.append(fast(x))
        torch_xla.sync()
print("scored", torch.cat(scores).cpu().shape)
