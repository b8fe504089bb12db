"""Curriculum by loss: the last loss, which stays on the device, is an argument of the compiled step (openxla)."""
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(device).eval()


@torch.compile(backend="openxla")
def score(x, difficulty):
    return ((model(x) - x).square().mean(-1) * difficulty).sum()


g = torch.Generator().manual_seed(2)
difficulty = torch.full((), 0.7, device=device)
xm.mark_step()
with torch.no_grad():
    for step in range(8):
        x = torch.randn(6, 8, generator=g).to(device)
        value = score(x, difficulty)
        difficulty = (0.9 * difficulty + 0.01 * value).detach()
print("difficulty", round(difficulty.item(), 3))
