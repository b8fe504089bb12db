"""The distillation weight is already a tensor, but 0-dimensional: 0 and 1 are constants all the same."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
teacher = nn.Linear(12, 4).to(device).eval().requires_grad_(False)
student = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
g = torch.Generator().manual_seed(6)
xm.mark_step()
for step in range(12):
    x = torch.randn(16, 12, generator=g).to(device)
    weight = torch.tensor([min(1.0, step / 4)]).to(device)
    soft = F.kl_div(student(x).log_softmax(1), teacher(x).softmax(1), reduction="batchmean")
    loss = (weight * soft).sum() + 0.1 * student(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 4))
