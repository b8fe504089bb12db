"""Logs every parameter's gradient norm in each step, by a dict comprehension."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
history = []


def gradient_norms(model):
    return {
        name: round(
            parameter.grad.norm().item(),
            5,
        )
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


xm.mark_step()
for step in range(12):
    x = torch.randn(8, 8, generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), (x[:, 0] > 0).long())
    loss.backward()
    xm.optimizer_step(opt)
    xm.mark_step()
    history.append(gradient_norms(model))
print("records", len(history))
