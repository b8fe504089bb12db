"""Robustness check: 24 projected gradient steps on each batch, one barrier per batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).to(device).eval()
model.requires_grad_(False)


def attack(x, y, eps=0.3, steps=24):
    adv = x.clone()
    for _ in range(steps):
        adv.requires_grad_(True)
        loss = F.cross_entropy(model(adv), y)
        (grad,) = torch.autograd.grad(loss, adv)
        adv = adv.detach() + 0.03 * grad.sign()
        adv = torch.max(torch.min(adv, x + eps), x - eps)
        xm.mark_step()
    return adv


g = torch.Generator().manual_seed(7)
robust = torch.zeros((), device=device)
xm.mark_step()
for batch in range(6):
    x = torch.randn(16, 16, generator=g).to(device)
    y = model(x).argmax(1)
    adv = attack(x, y)
    robust += (model(adv).argmax(1) == y).float().mean()
    xm.mark_step()
print("robust accuracy", round(robust.item() / 6, 3))
