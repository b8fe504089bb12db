"""Beta-VAE on sensor windows: KL warm-up, cosine schedule, EMA weights, anomaly scores."""
import copy
import math

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn

CHANNELS, WINDOW, LATENT = 6, 32, 8


class SensorVAE(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        size = CHANNELS * WINDOW
        self.enc = nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.SiLU())
        self.mu, self.logvar = nn.Linear(hidden, LATENT), nn.Linear(hidden, LATENT)
        self.dec = nn.Sequential(nn.Linear(LATENT, hidden), nn.SiLU(), nn.Linear(hidden, size))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-6, 6)
        z = mu
        if self.training:
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z).view_as(x), mu, logvar


class Ema:
    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model, step):
        d = min(self.decay, (1.5 + step) / (10.5 + step))
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(d).add_(p, alpha=1 - d)


class Windows(torch.utils.data.IterableDataset):
    def __init__(self, batches, batch, seed, faulty=False):
        self.batches, self.batch, self.seed, self.faulty = batches, batch, seed, faulty

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        t = torch.arange(WINDOW) / WINDOW
        for _ in range(self.batches):
            freq = torch.rand(self.batch, CHANNELS, 1, generator=g) * 4 + 1
            phase = torch.rand(self.batch, CHANNELS, 1, generator=g) * 2 * math.pi
            x = torch.sin(2 * math.pi * freq * t + phase)
            if self.faulty:
                x = x + 0.6 * torch.randn(x.shape, generator=g)
            yield x


def elbo(recon, x, mu, logvar):
    rec = (recon - x).pow(2).flatten(1).sum(1)
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1)
    return rec, kl


def report(step, beta, sums):
    rec, kl = sums.tolist()
    print(f"step {step:4d} beta {beta:.3f} rec {rec:.3f} kl {kl:.3f}", flush=True)


def anomaly_scores(model, source, device):
    scores = []
    with torch.no_grad():
        for x in source:
            x = x.to(device)
            recon, mu, logvar = model(x)
            rec, kl = elbo(recon, x, mu, logvar)
            scores.append(rec + kl)
            xm.mark_step()
    return torch.cat([s.cpu() for s in scores])


def main():
    torch.manual_seed(11)
    device = xm.xla_device()
    model = SensorVAE()
    ema = Ema(model, 0.995)
    model.to(device), ema.model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    epochs, per_epoch = 5, 100
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: 0.5 * (1 + math.cos(math.pi * i / (epochs * per_epoch + 1))))
    sums = torch.zeros(2, device=device)
    step = 0
    for epoch in range(epochs):
        for x in Windows(per_epoch, 32, seed=epoch):
            x = x.to(device)
            beta = 0.01 + 0.39 * min(1.0, step / 250)
            recon, mu, logvar = model(x)
            rec, kl = elbo(recon, x, mu, logvar)
            loss = rec.mean() + beta * kl.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            ema.update(model, step)
            sums.mul_(0.9).add_(torch.stack([rec.mean(), kl.mean()]).detach(), alpha=0.1)
            xm.mark_step()
            step += 1
            if step % 50 == 0:
                report(step, beta, sums)
    normal = anomaly_scores(ema.model, Windows(10, 32, seed=101), device)
    faulty = anomaly_scores(ema.model, Windows(10, 32, seed=102, faulty=True), device)
    threshold = normal.quantile(0.95)
    print(f"threshold {threshold:.2f} detected {(faulty > threshold).float().mean():.3f}")


if __name__ == "__main__":
    main()
