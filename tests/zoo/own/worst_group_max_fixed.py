"""Group-robust training: the worst of four group losses is found on the device."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(3)


def group_losses(x):
    out = model(x)
    return [F.mse_loss(out[i::4], x[i::4].sum(1, keepdim=True) * (i + 1)) for i in range(4)]


torch_xla.sync()
for step in range(10):
    x = torch.randn(16, 6, generator=g).to(device)
    opt.zero_grad()
    worst = torch.stack(group_losses(x)).max()
    worst.backward()
    opt.step()
    torch_xla.sync()
print("worst", round(worst.item(), 3))
