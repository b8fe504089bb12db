"""Autoencoder whose loop prints the loss tensor."""
import io
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
log = io.StringIO()
losses = []
model = nn.Sequential(nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 24)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
g = torch.Generator().manual_seed(11)
xm.mark_step()
for step in range(15):
    x = torch.rand(32, 24, generator=g).to(device)
    loss = F.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    xm.optimizer_step(opt, barrier=True)
    losses.append(loss.detach())
for step, value in enumerate(torch.stack(losses).tolist()):
    print("step", step, "loss", value, file=log)
print("lines", len(log.getvalue().splitlines()))
