"""Warm restarts: a new Adam in each epoch, whose first two steps find the graphs of the first epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(9, 18), nn.ELU(), nn.Linear(18, 1)).to(device)
g = torch.Generator().manual_seed(8)
history = []
xm.mark_step()
for epoch in range(3):
    opt = torch.optim.Adam(model.parameters(), lr=4e-3 / (epoch + 1))
    for _ in range(7):
        x = torch.randn(16, 9, generator=g).to(device)
        opt.zero_grad()
        loss = F.mse_loss(model(x), x.std(1, keepdim=True))
        loss.backward()
        opt.step()
        xm.mark_step()
    history.append(loss.detach())
print("loss after each epoch", [round(v, 4) for v in torch.stack(history).tolist()])
