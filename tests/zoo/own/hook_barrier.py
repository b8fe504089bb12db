"""A forward hook, meant to bound memory, puts a barrier after every block."""
import functools
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(12, 12), nn.GELU()) for _ in range(6)], nn.Linear(12, 2)).to(device)


def flush(name, module, inputs, output):
    xm.mark_step()


for name, block in model.named_children():
    block.register_forward_hook(functools.partial(flush, name))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(14):
    x = torch.randn(8, 12, generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), (x.mean(1) > 0).long())
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
