"""Inference without torch.no_grad: each stored output keeps the activations that made it."""
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4)).to(device).eval()
g = torch.Generator().manual_seed(0)
outputs = []
xm.mark_step()
for batch in range(150):
    x = torch.randn(32, 64, generator=g).to(device)
    with torch.no_grad():
        logits = model(x)
    outputs.append(logits)
    xm.mark_step()
print("mean", round(torch.cat(outputs).mean().item(), 4))
