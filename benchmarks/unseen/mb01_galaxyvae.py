"""Galaxy morphology: a discrete-latent VAE on synthetic postage stamps.

Every stamp is a Sersic-like disc with a bar or arms.  The encoder gives logits over
`n_latent` categorical variables (Gumbel-softmax), the decoder paints the stamp again.
After training we look how well the codes separate the morphological classes.
"""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ("elliptical", "spiral", "barred")


def make_stamps(n, size, gen):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    label = torch.randint(0, 3, (n,), generator=gen)
    phi = torch.rand(n, 1, 1, generator=gen) * math.pi
    q = 0.4 + 0.6 * torch.rand(n, 1, 1, generator=gen)
    re = 0.25 + 0.3 * torch.rand(n, 1, 1, generator=gen)
    xr = x * torch.cos(phi) + y * torch.sin(phi)
    yr = (-x * torch.sin(phi) + y * torch.cos(phi)) / q
    r = torch.sqrt(xr**2 + yr**2) + 1e-3
    theta = torch.atan2(yr, xr)
    disc = torch.exp(-r / re)
    arms = disc * (1 + torch.cos(2 * theta - 7 * torch.log(r)))
    bar = disc + 0.9 * torch.exp(-((xr / 0.5) ** 2) - (yr / 0.1) ** 2)
    pick = label.view(-1, 1, 1)
    img = torch.where(pick == 0, disc, torch.where(pick == 1, arms, bar))
    img = img / img.amax((1, 2), keepdim=True)
    img = img + 0.05 * torch.randn(img.shape, generator=gen)
    return img.unsqueeze(1), label


class GumbelCode(nn.Module):
    """Relaxed categorical code whose temperature decays while training."""

    def __init__(self, n_latent, n_codes, t_start=2.0, t_end=0.5, decay=0.01):
        super().__init__()
        self.n_latent, self.n_codes = n_latent, n_codes
        self.t_start, self.t_end, self.decay = t_start, t_end, decay
        self.updates = 0

    def temperature(self):
        return self.t_end + (self.t_start - self.t_end) * math.exp(-self.decay * self.updates)

    def forward(self, logits):
        logits = logits.view(-1, self.n_latent, self.n_codes)
        if not self.training:
            return F.one_hot(logits.argmax(-1), self.n_codes).float(), logits
        tau = self.temperature()
        self.updates += 1
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        g = -torch.log(-torch.log(u))
        return torch.softmax((logits + g) / tau, -1), logits


class MorphVAE(nn.Module):
    def __init__(self, n_latent=8, n_codes=6, width=12):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.GroupNorm(4, width), nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.GroupNorm(4, 2 * width), nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 4, 2, 1), nn.SiLU(), nn.Flatten(),
            nn.Linear(2 * width * 16, n_latent * n_codes))
        self.code = GumbelCode(n_latent, n_codes)
        self.fc = nn.Linear(n_latent * n_codes, 2 * width * 16)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(2 * width, 2 * width, 4, 2, 1), nn.GroupNorm(4, 2 * width), nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1))
        self.width = width

    def forward(self, x):
        z, logits = self.code(self.enc(x))
        h = self.fc(z.flatten(1)).view(-1, 2 * self.width, 4, 4)
        return self.dec(h), logits


def elbo(recon, x, logits, beta):
    logq = torch.log_softmax(logits, -1)
    kl = (logq.exp() * (logq + math.log(logits.shape[-1]))).sum((-1, -2)).mean()
    return F.mse_loss(recon, x, reduction="none").sum((1, 2, 3)).mean() + beta * kl


def probe(model, x, y):
    """Nearest class mean in the space of the hard codes."""
    model.eval()
    with torch.no_grad():
        z = torch.cat([model.code(model.enc(b))[0].flatten(1) for b in x.split(256)])
    half = len(z) // 2
    means = torch.stack([z[:half][y[:half] == c].mean(0) for c in range(3)])
    acc = (torch.cdist(z[half:], means).argmin(1) == y[half:]).float().mean()
    model.train()
    return acc.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(11)
    x, y = make_stamps(2048, 32, gen)
    model = MorphVAE()
    net = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        t0, total = time.time(), torch.zeros(())
        for idx in torch.randperm(len(x), generator=gen).split(args.batch):
            xb = x[idx]
            recon, logits = net(xb)
            loss = elbo(recon, xb, logits, beta=0.1)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach() * len(idx)
        print(f"epoch {epoch}  loss {total.item() / len(x):8.3f}  tau {model.code.temperature():.3f}  "
              f"{time.time() - t0:.1f}s")
    acc = probe(model, x, y)
    print("codes separate", CLASSES, f"with accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
