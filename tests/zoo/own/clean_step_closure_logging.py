"""Logs every fourth step from a step closure, after the barrier."""
import io
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
log = io.StringIO()


def report(step, loss):
    print(f"step {step} loss {loss.item():.4f}", file=log)


model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(7)
xm.mark_step()
for step in range(32):
    x = torch.randn(32, 64, generator=g).to(device)
    y = torch.randint(0, 10, (32,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    xm.optimizer_step(opt)
    if step % 16 == 0:
        xm.add_step_closure(report, args=(step, loss))
    xm.mark_step()
print("logged", len(log.getvalue().splitlines()))
