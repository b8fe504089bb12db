"""The data-parallel skeleton on one process: all_reduce of gradients and of a metric, a rendezvous, a master print."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Linear(12, 4).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(xr.global_ordinal())
correct = torch.zeros((), device=device)
xm.mark_step()
for step in range(14):
    x = torch.randn(16, 12, generator=g).to(device)
    y = x[:, :4].argmax(1)
    opt.zero_grad()
    logits = model(x)
    F.cross_entropy(logits, y).backward()
    xm.optimizer_step(opt)
    correct += xm.all_reduce(xm.REDUCE_SUM, (logits.argmax(1) == y).float().mean())
    xm.mark_step()
xm.rendezvous("trained")
xm.master_print("accuracy", round(correct.item() / 14 / xr.world_size(), 3))
