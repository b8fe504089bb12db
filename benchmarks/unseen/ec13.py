"""Conditional VAE on synthetic spectra; KL annealing and learning rate change every step, without recompiling."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BINS, ELEMENTS, LATENT = 128, 5, 8


def spectra(n, seed):
    """Sums of element templates with random shift and gain, plus a smooth background."""
    tg = torch.Generator().manual_seed(123)
    peaks = torch.rand(ELEMENTS, 4, generator=tg) * 0.8 + 0.1
    height = 0.3 + torch.rand(ELEMENTS, 4, generator=tg)
    g = torch.Generator().manual_seed(seed)
    mix = (torch.rand(n, ELEMENTS, generator=g) < 0.4).float()
    axis = torch.linspace(0, 1, BINS)
    shift = 0.02 * torch.randn(n, 1, 1, 1, generator=g)
    lines = height[None, :, :, None] * torch.exp(-((axis - peaks[None, :, :, None] - shift) / 0.02) ** 2)
    gain = 0.7 + 0.6 * torch.rand(n, ELEMENTS, 1, generator=g)
    slope = torch.rand(n, 1, generator=g)
    x = (mix[:, :, None] * gain * lines.sum(2)).sum(1) + 0.4 * slope * (1 - axis)
    return x + 0.02 * torch.randn(n, BINS, generator=g), mix


class CVAE(nn.Module):
    def __init__(self, hidden=192):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(BINS + ELEMENTS, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.stats = nn.Linear(hidden, 2 * LATENT)
        self.dec = nn.Sequential(nn.Linear(LATENT + ELEMENTS, hidden), nn.SiLU(), nn.Linear(hidden, hidden),
                                 nn.SiLU(), nn.Linear(hidden, BINS))

    def decode(self, z, c):
        return self.dec(torch.cat([z, c], -1))

    def forward(self, x, c, eps):
        mu, logvar = self.stats(self.enc(torch.cat([x, c], -1))).chunk(2, -1)
        return self.decode(mu + eps * (0.5 * logvar).exp(), c), mu, logvar


def elbo(model, x, c, eps, beta):
    rec, mu, logvar = model(x, c, eps)
    err = ((rec - x) ** 2).sum(-1) / (2 * 0.05 ** 2)
    kl = 0.5 * (mu * mu + logvar.exp() - 1 - logvar).sum(-1)
    return (err + beta * kl).mean(), err.mean().detach(), kl.mean().detach()


class Meter:
    """Sums on the tensors; turns into numbers only when the epoch is printed."""

    def __init__(self, *names):
        self.names, self.sums, self.n = names, torch.zeros(len(names)), 0

    def add(self, *values):
        self.sums += torch.stack([v.detach() for v in values])
        self.n += 1

    def read(self):
        out = dict(zip(self.names, (self.sums / self.n).tolist()))
        self.sums.zero_()
        self.n = 0
        return out


def ablate(decode, c, sizes=(40, 64, 96, 150)):
    """How much of the spectrum's variance the condition explains, per element: groups differ in size."""
    out = []
    for e in range(ELEMENTS):
        k = sizes[e % len(sizes)]
        z, cond = torch.randn(k, LATENT), c[:k].clone()
        torch._dynamo.mark_dynamic(z, 0)
        torch._dynamo.mark_dynamic(cond, 0)
        full = decode(z, cond)
        cond[:, e] = 1 - cond[:, e]
        out.append((decode(z, cond) - full).pow(2).mean())
    return torch.stack(out)


def main(epochs=16, batch=100):
    torch.manual_seed(0)
    x, c = spectra(6000, 0)
    tx, tc = spectra(1000, 1)
    model = CVAE()
    loss_fn = torch.compile(elbo, backend="aot_eager")
    decode = torch.compile(model.decode, backend="aot_eager")
    lr = torch.tensor(1e-3)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    beta, meter = torch.zeros(()), Meter("loss", "error", "kl")
    steps = epochs * (len(x) // batch)
    step = 0
    for epoch in range(epochs):
        t0 = time.time()
        for idx in torch.randperm(len(x)).split(batch):
            beta.fill_(min(1.0, step / (0.3 * steps)))
            lr.fill_(1e-3 * (1 - 0.9 * step / steps))
            loss, err, kl = loss_fn(model, x[idx], c[idx], torch.randn(len(idx), LATENT), beta)
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.add(loss, err, kl)
            step += 1
        m = meter.read()
        with torch.no_grad():
            test = elbo(model, tx, tc, torch.zeros(len(tx), LATENT), beta)[0].item()
        if not torch.isfinite(torch.tensor(test)):
            raise FloatingPointError("diverged")
        print(f"epoch {epoch} " + " ".join(f"{k} {v:.2f}" for k, v in m.items()) +
              f" test {test:.2f} {time.time() - t0:.1f}s", flush=True)
    with torch.no_grad():
        power = ablate(decode, tc)
    print("power per element:", [round(p, 4) for p in power.tolist()])


if __name__ == "__main__":
    main()
