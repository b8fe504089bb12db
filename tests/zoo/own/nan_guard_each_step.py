"""Stops when the loss is not finite, and looks at it in every step before the barrier."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.03)
g = torch.Generator().manual_seed(0)
torch_xla.sync()
for step in range(16):
    x = torch.randn(16, 10, generator=g).to(device)
    opt.zero_grad()
    loss = F.smooth_l1_loss(model(x), x.mean(1, keepdim=True))
    if not torch.isfinite(loss):
        raise SystemExit(f"step {step}: the loss is not finite")
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
