"""Circular shift as augmentation: the shift is a Python number that differs from step to step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
SHIFTS = [3, 3, 5, 3, 5, 2, 3, 2, 5, 3]


def augment(x, shift):
    return torch.roll(x, shifts=shift, dims=1)


model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 24)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
xm.mark_step()
for shift in SHIFTS:
    x = torch.rand(16, 24, generator=g).to(device)
    opt.zero_grad()
    loss = F.l1_loss(model(augment(x, shift)), x)
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 4))
