"""ReduceLROnPlateau is given the loss, a tensor on the device, after every batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(3)
model = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1000)
torch_xla.sync()
for step in range(30):
    x = torch.randn(16, 24, generator=g)
    y = x.sum(1, keepdim=True)
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
    plateau.step(loss)
print("loss", round(loss.item(), 3))
