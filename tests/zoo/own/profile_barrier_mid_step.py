"""A timing helper left in the loop puts a barrier between forward and backward in every fifth step."""
import time
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.02)
loss_fn = nn.MSELoss()
g = torch.Generator().manual_seed(0)
times = []
xm.mark_step()
for step in range(15):
    x = torch.randn(24, 16, generator=g).to(device)
    opt.zero_grad()
    started = time.perf_counter()
    loss = loss_fn(model(x), x[:, :1])
    if step % 5 == 4:
        xm.mark_step()
        times.append(time.perf_counter() - started)
    loss.backward()
    opt.step()
    xm.mark_step()
print("forward timed", len(times), "times, loss", round(loss.item(), 3))
