"""WGAN: the critic is trained in every iteration, the generator in every third, recorded into the critic's next step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to(device)
opt_g = torch.optim.RMSprop(G.parameters(), lr=1e-3)
opt_d = torch.optim.RMSprop(D.parameters(), lr=1e-3)


def noise():
    return torch.randn(16, 4, generator=g).to(device)


def train_critic(real):
    opt_d.zero_grad()
    loss = D(G(noise()).detach()).mean() - D(real).mean()
    loss.backward()
    opt_d.step()
    for p in D.parameters():
        p.data.clamp_(-0.05, 0.05)
    torch_xla.sync()
    return loss


def train_generator():
    opt_g.zero_grad()
    loss = -D(G(noise())).mean()
    loss.backward()
    opt_g.step()
    return loss


loss_d = loss_g = torch.zeros(())
for it in range(24):
    real = torch.randn(16, 2, generator=g).to(device)
    loss_d = train_critic(real)
    if it % 3 == 2:
        loss_g = train_generator()
torch_xla.sync()
print("critic", round(loss_d.item(), 4), "generator", round(loss_g.item(), 4))
