"""Cosine schedule with warm-up that never reaches 0 or 1, Adam, gradient clipping: one graph after warm-up."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
TOTAL = 16


def factor(step):
    return (step + 1) / 4 * 0.99 if step < 3 else 0.99 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / TOTAL)))


model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, factor)
g = torch.Generator().manual_seed(0)
torch_xla.sync()
for step in range(TOTAL):
    x = torch.randn(16, 8, generator=g).to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.5)
    opt.step()
    schedule.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
