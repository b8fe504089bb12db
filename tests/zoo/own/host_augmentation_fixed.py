"""Augments each batch with numpy in the training loop, in a named scope."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp

torch.manual_seed(0)
device = xm.xla_device()
rng = np.random.default_rng(0)
images = rng.random((64, 1, 12, 12), dtype=np.float32)


def augment(batch):
    return batch + 0.05 * torch.randn_like(batch)


model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
xm.mark_step()
for step in range(16):
    pick = rng.integers(0, 64, 16)
    x = torch.from_numpy(images[pick]).to(device)
    with xp.Trace("augment"):
        x = augment(x)
    y = torch.from_numpy(pick % 10).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
