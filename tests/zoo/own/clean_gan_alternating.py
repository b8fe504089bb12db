"""GAN whose two players take turns, each with a barrier: two graphs that take turns for ever."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
G = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3)).to(device)
D = nn.Sequential(nn.Linear(3, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1)).to(device)
opts = {"D": torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9)), "G": torch.optim.Adam(G.parameters(), lr=1e-3)}
g = torch.Generator().manual_seed(3)
real_label, fake_label = torch.ones(16, 1, device=device), torch.zeros(16, 1, device=device)
losses = {"D": torch.zeros((), device=device), "G": torch.zeros((), device=device)}
xm.mark_step()


def play(who, real, noise):
    opts[who].zero_grad()
    fake = G(noise)
    if who == "D":
        loss = F.binary_cross_entropy_with_logits(D(real), real_label)
        loss = loss + F.binary_cross_entropy_with_logits(D(fake.detach()), fake_label)
    else:
        D.requires_grad_(False)
        loss = F.binary_cross_entropy_with_logits(D(fake), real_label)
    loss.backward()
    D.requires_grad_(True)
    opts[who].step()
    losses[who] = losses[who] * 0.9 + loss.detach() * 0.1
    xm.mark_step()


for it in range(20):
    real = torch.randn(16, 3, generator=g).to(device)
    noise = torch.randn(16, 6, generator=g).to(device)
    play("G" if it % 2 else "D", real, noise)
print({who: round(loss.item(), 3) for who, loss in losses.items()})
