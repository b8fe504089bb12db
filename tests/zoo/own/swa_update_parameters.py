"""Stochastic weight averaging with torch's AveragedModel, updated in every step from the fifth on."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4)).to(device)
averaged = AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(5)
xm.mark_step()
for step in range(14):
    x = torch.randn(12, 10, generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    loss.backward()
    opt.step()
    xm.mark_step()
    if step >= 4:
        averaged.update_parameters(model)
        xm.mark_step()
print("loss", round(loss.item(), 3))
