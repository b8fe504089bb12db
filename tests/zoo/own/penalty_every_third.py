"""Lazy regularisation: the gradient penalty is added in every third step only."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Critic(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 24), nn.Softplus(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x)


def smoothness(critic, x):
    noisy = x + 0.05 * torch.randn_like(x)
    return (critic(noisy) - critic(x)).pow(2).mean()


critic = Critic().to(device)
opt = torch.optim.SGD(critic.parameters(), lr=0.05)
g = torch.Generator().manual_seed(5)
torch_xla.sync()
for step in range(15):
    real = torch.randn(16, 12, generator=g).to(device)
    fake = torch.rand(16, 12, generator=g).to(device)
    loss = critic(fake).mean() - critic(real).mean()
    if step % 3 == 0:
        loss = loss + 10 * smoothness(critic, real)
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("critic", round(loss.item(), 3))
