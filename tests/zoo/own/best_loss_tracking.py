"""Keeps the best loss so far with a Python comparison in every step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(6)
best, patience = torch.tensor(float("inf")).to(device), 0
torch_xla.sync()
for step in range(18):
    x = torch.randn(32, 8, generator=g).to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), x.prod(1, keepdim=True))
    loss.backward()
    opt.step()
    torch_xla.sync()
    if loss < best:
        best, patience = loss.detach(), 0
    else:
        patience += 1
    if patience > 12:
        break
print("best", round(best.item(), 4))
