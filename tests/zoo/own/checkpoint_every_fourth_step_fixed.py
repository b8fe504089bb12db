"""Saves a checkpoint in every fourth step, on the training thread."""
import io
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


def save_checkpoint(model, step):
    buffer = io.BytesIO()
    xm.save({"step": step, "model": model.state_dict()}, buffer)
    time.sleep(0.08)  # uploading to the bucket
    return len(buffer.getvalue())


model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(10)
written = 0
xm.mark_step()
for step in range(24):
    x = torch.randn(16, 32, generator=g).to(device)
    y = torch.randint(0, 8, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    xm.mark_step()
written += save_checkpoint(model, step)
print("bytes", written > 0, "loss", round(loss.item(), 3))
