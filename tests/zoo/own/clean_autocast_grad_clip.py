"""bfloat16 autocast and clipped gradients, the learning rate decays by a factor each epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.amp import autocast

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.7)
g = torch.Generator().manual_seed(2)
history = []
xm.mark_step()
for epoch in range(3):
    for _ in range(6):
        x = torch.randn(16, 16, generator=g).to(device)
        y = torch.randint(0, 4, (16,), generator=g).to(device)
        opt.zero_grad()
        with autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.5)
        opt.step()
        xm.mark_step()
    schedule.step()
    history.append(loss.detach())
print("loss after each epoch", [round(v, 3) for v in torch.stack(history).tolist()])
