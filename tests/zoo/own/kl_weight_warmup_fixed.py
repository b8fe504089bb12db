"""Variational autoencoder: the weight of the KL term rises from 0 to 1 and stays there."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
WARMUP = 5


class VAE(nn.Module):
    def __init__(self, d=20, z=4):
        super().__init__()
        self.enc = nn.Linear(d, 2 * z)
        self.dec = nn.Linear(z, d)

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
        return self.dec(z), kl


model = VAE().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(12):
    x = torch.randn(16, 20, generator=g).to(device)
    recon, kl = model(x)
    beta = torch.tensor([min(1.0, step / WARMUP)]).to(device)
    loss = F.mse_loss(recon, x) + (beta * kl).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
