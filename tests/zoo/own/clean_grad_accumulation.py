"""Gradient accumulation as it should be: four micro-batches and the update in one graph."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
ACCUM = 4
model = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 1)).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
g = torch.Generator().manual_seed(5)
losses = []
xm.mark_step()
for step in range(10):
    total = torch.zeros((), device=device)
    for _ in range(ACCUM):
        x = torch.randn(8, 10, generator=g).to(device)
        loss = F.mse_loss(model(x), x.amax(1, keepdim=True)) / ACCUM
        loss.backward()
        total += loss.detach()
    opt.step()
    opt.zero_grad()
    losses.append(total)
    xm.mark_step()
print("losses", [round(value, 2) for value in torch.stack(losses).tolist()])
