"""Variational autoencoder for sensor windows; KL weight warmed up, one summary an epoch."""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla


class SensorVAE(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(width, 96), nn.ELU(), nn.Linear(96, 64), nn.ELU())
        self.mu = nn.Linear(64, latent)
        self.logvar = nn.Linear(64, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 64), nn.ELU(), nn.Linear(64, 96), nn.ELU(), nn.Linear(96, width))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-6, 6)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar, kl_weight):
    rec = F.mse_loss(recon, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + kl_weight * kl, rec, kl


def windows(n, width):
    t = torch.linspace(0, 6.28, width)
    freq = torch.randint(1, 5, (n, 1))
    return torch.sin(freq * t + torch.rand(n, 1) * 6.28) + 0.1 * torch.randn(n, width)


class Summary:
    def __init__(self, device):
        self.sums = {k: torch.zeros((), device=device) for k in ("loss", "rec", "kl")}
        self.count = 0

    def add(self, **values):
        for k, v in values.items():
            self.sums[k] += v.detach()
        self.count += 1

    def as_dict(self):
        keys = list(self.sums)
        values = torch.stack([self.sums[k] for k in keys]).tolist()
        return {k: round(v / self.count, 4) for k, v in zip(keys, values)}


def run_epoch(model, loader, optimizer, kl_weight, device):
    summary = Summary(device)
    for (x,) in loader:
        x = x.to(device)
        recon, mu, logvar = model(x)
        loss, rec, kl = elbo(recon, x, mu, logvar, kl_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        summary.add(loss=loss, rec=rec, kl=kl)
    torch_xla.sync()
    return summary.as_dict()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--windows", type=int, default=320)
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--latent", type=int, default=6)
    args = p.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    loader = DataLoader(TensorDataset(windows(args.windows, args.width)), batch_size=args.batch, shuffle=True,
                        drop_last=True)
    model = SensorVAE(args.width, args.latent).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(args.epochs):
        kl_weight = 0.05 * (epoch + 1)
        print(json.dumps({"epoch": epoch, **run_epoch(model, loader, optimizer, kl_weight, device)}))


if __name__ == "__main__":
    main()
