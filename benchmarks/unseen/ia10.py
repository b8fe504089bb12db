"""Online fraud scoring: an autoencoder trained offline, then served through torch.compile(backend="openxla")."""
import collections
import time

import numpy as np
import torch
import torch.nn as nn
import torch_xla

FEATURES, LATENT = 48, 8


class Payments:
    """Card payments near a low-dimensional manifold; frauds leave it."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.map = np.random.default_rng(99).normal(size=(LATENT, FEATURES)) / LATENT**0.5

    def draw(self, n, fraud=0.0):
        bad = self.rng.random(n) < fraud
        x = np.tanh(self.rng.normal(size=(n, LATENT)) @ self.map)
        x += 0.05 * self.rng.normal(size=x.shape)
        x[bad] += 0.7 * self.rng.normal(size=(bad.sum(), FEATURES))
        return torch.from_numpy(x.astype(np.float32)), bad

    def traffic(self, requests):
        """Requests as they come in: a few payments each, more at peak hours."""
        for k in range(requests):
            peak = 1 + np.sin(2 * np.pi * k / 60) ** 2
            n = int(np.clip(self.rng.gamma(3, 4 * peak), 2, 64))
            yield self.draw(n, fraud=0.04)


class AutoEncoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, LATENT))
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, FEATURES))

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Scorer(nn.Module):
    """Reconstruction error relative to that of ordinary payments."""

    def __init__(self, model, device):
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.zeros((), device=device))
        self.register_buffer("scale", torch.ones((), device=device))

    def forward(self, x):
        error = (self.model(x) - x).square().mean(-1).log()
        return (error - self.mean) / self.scale


def fit(model, source, device, steps=400):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data, _ = source.draw(8192)
    data = data.to(device)
    total = torch.zeros((), device=device)

    @torch_xla.compile
    def step(rows):
        x = data[rows]
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total.add_(loss.detach())

    for k in range(1, steps + 1):
        step(torch.randint(0, len(data), (128,)).to(device))
        if k % 100 == 0:
            print(f"step {k}: mean loss {total.item() / 100:.4f}")
            total.zero_()


def calibrate(scorer, source, device):
    with torch.no_grad():
        x, _ = source.draw(2048)
        score = scorer(x.to(device)).cpu()
        scorer.mean.fill_(float(score.mean()))
        scorer.scale.fill_(float(score.std()))
    torch_xla.sync()


def serve(scorer, source, device, requests=80, threshold=4.0):
    compiled = torch.compile(scorer, backend="openxla", dynamic=False)
    tally, latency = collections.Counter(), []
    for x, bad in source.traffic(requests):
        start = time.perf_counter()
        with torch.no_grad():
            score = compiled(x.to(device)).cpu().numpy()     # the answer to the request
        latency.append(time.perf_counter() - start)
        flagged = score > threshold
        tally.update(payments=len(bad), frauds=int(bad.sum()), caught=int((flagged & bad).sum()), alarms=int((flagged & ~bad).sum()))
    return tally, np.array(latency) * 1e3


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = AutoEncoder().to(device)
    fit(model, Payments(1), device)
    model.eval()
    scorer = Scorer(model, device)
    calibrate(scorer, Payments(2), device)
    torch._dynamo.config.recompile_limit = 64
    tally, latency = serve(scorer, Payments(3), device)
    print(dict(tally))
    print(f"recall {tally['caught'] / tally['frauds']:.2f}, false alarms {tally['alarms'] / tally['payments']:.4f}")
    print(f"latency ms: median {np.median(latency):.1f}, 90 % {np.quantile(latency, 0.9):.1f}, worst {latency.max():.0f}")


if __name__ == "__main__":
    main()
