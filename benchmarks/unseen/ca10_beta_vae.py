"""Beta-VAE with KL warm-up for daily load curves of power meters."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    hours: int = 48
    latent: int = 6
    width: int = 128
    batch: int = 128
    steps: int = 400
    warmup: int = 300
    beta_max: float = 2.0
    lr: float = 1e-3


def load_curves(n, hours, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours) / 24 * 2 * math.pi
    peak = torch.rand(n, 2, generator=g) * 2 * math.pi
    size = torch.rand(n, 2, generator=g) + 0.2
    base = torch.rand(n, 1, generator=g)
    y = base + size[:, :1] * (t - peak[:, :1]).cos().clamp_min(0) + size[:, 1:] * (2 * t - peak[:, 1:]).cos().clamp_min(0)
    return y + 0.05 * torch.randn(n, hours, generator=g)


class LoadVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.enc = nn.Sequential(nn.Linear(cfg.hours, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU())
        self.to_stats = nn.Linear(w, 2 * cfg.latent)
        self.dec = nn.Sequential(nn.Linear(cfg.latent, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, cfg.hours))
        self.warmup, self.beta_max = cfg.warmup, cfg.beta_max
        self.seen = 0

    def forward(self, x):
        mu, logvar = self.to_stats(self.enc(x)).chunk(2, -1)
        logvar = logvar.clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = F.mse_loss(self.dec(z), x, reduction="none").sum(-1)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1)
        if self.training:
            self.seen += 1
        beta = self.beta_max * min(1.0, self.seen / self.warmup)
        return (recon + beta * kl).mean(), recon.mean().detach(), kl.mean().detach()


class CsvLog:
    def __init__(self, every):
        self.every, self.rows = every, []

    def on_step(self, step, recon, kl):
        if step % self.every == 0:
            self.rows.append((step, recon.item(), kl.item()))
            print("step %d recon %.3f kl %.3f" % self.rows[-1], flush=True)


def main():
    cfg = Settings()
    torch.manual_seed(0)
    data = load_curves(4096, cfg.hours)
    model = LoadVAE(cfg)
    log = CsvLog(100)
    compiled = torch.compile(model, backend="aot_eager")
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    order = torch.randperm(len(data))
    cursor = 0
    for step in range(1, cfg.steps + 1):
        if cursor + cfg.batch > len(data):
            order, cursor = torch.randperm(len(data)), 0
        batch = data[order[cursor:cursor + cfg.batch]]
        cursor += cfg.batch
        loss, recon, kl = compiled(batch)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        opt.step()
        log.on_step(step, recon, kl)
    model.eval()
    with torch.no_grad():
        used = model.to_stats(model.enc(data)).chunk(2, -1)[0].std(0)
    print("active units", int((used > 0.1).sum()))


if __name__ == "__main__":
    main()
