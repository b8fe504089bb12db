"""Denoising diffusion of 2-D galaxy images: short training, then sampling and a power-spectrum check."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
torch._dynamo.config.recompile_limit = 64        # the sampler is specialised a few times
SIZE, T = 16, 32


def galaxies(n):
    """Sersic-like blobs with random ellipticity and angle, scaled to [-1, 1]."""
    ax = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    theta = math.pi * torch.rand(n, 1, 1)
    ell = 0.4 + 0.6 * torch.rand(n, 1, 1)
    dx, dy = 0.3 * torch.randn(n, 1, 1), 0.3 * torch.randn(n, 1, 1)
    a = (xx - dx) * torch.cos(theta) + (yy - dy) * torch.sin(theta)
    b = (-(xx - dx) * torch.sin(theta) + (yy - dy) * torch.cos(theta)) / ell
    r = torch.sqrt(a * a + b * b + 1e-4)
    return (2 * torch.exp(-((r / 0.25) ** 0.9)) - 1)[:, None]


class Schedule:
    """Cosine noise schedule, kept as plain numbers for readable formulas."""

    def __init__(self, steps):
        f = [math.cos((t / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(steps + 1)]
        self.betas = [min(1 - f[t + 1] / f[t], 0.999) for t in range(steps)]
        self.alphas = [1 - b for b in self.betas]
        self.bars, prod = [], 1.0
        for a in self.alphas:
            prod *= a
            self.bars.append(prod)

    def tensor(self):
        return torch.tensor(self.bars)


class Block(nn.Module):
    def __init__(self, width, emb):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.emb = nn.Linear(emb, 2 * width)

    def forward(self, x, e):
        scale, shift = self.emb(e)[:, :, None, None].chunk(2, 1)
        h = self.conv1(F.silu(self.norm(x))) * (1 + scale) + shift
        return x + self.conv2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, width=32, emb=64, depth=4):
        super().__init__()
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList([Block(width, emb) for _ in range(depth)])
        self.out = nn.Conv2d(width, 1, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.register_buffer("freq", torch.exp(torch.linspace(0, -6, emb // 2)))

    def forward(self, x, t):
        arg = t.float()[:, None] * self.freq
        e = self.time(torch.cat([arg.sin(), arg.cos()], 1))
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, e)
        return self.out(F.silu(h))


def train(model, sched, steps=160, batch=32):
    net = torch.compile(model, backend="aot_eager")
    data = galaxies(2048)
    bars = sched.tensor()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total = torch.zeros(())
    for step in range(steps):
        x = data[torch.randint(0, len(data), (batch,))]
        t = torch.randint(0, T, (batch,))
        noise = torch.randn_like(x)
        bar = bars[t][:, None, None, None]
        loss = F.mse_loss(net(bar.sqrt() * x + (1 - bar).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
        if step % 40 == 39:
            print(f"step {step + 1}: loss {total.item() / 40:.4f}", flush=True)
            total.zero_()
    return data


@torch.no_grad()
def sample(model, sched, n):
    @torch.compile(backend="aot_eager")
    def reverse(x, t, noise):
        eps = model(x, torch.full((len(x),), t))
        mean = (x - sched.betas[t] / math.sqrt(1 - sched.bars[t]) * eps) / math.sqrt(sched.alphas[t])
        return mean + math.sqrt(sched.betas[t]) * noise if t > 0 else mean

    x = torch.randn(n, 1, SIZE, SIZE)
    for t in reversed(range(T)):
        x = reverse(x, t, torch.randn_like(x))
    return x


def spectrum(x):
    return torch.fft.rfft2(x[:, 0]).abs().square().mean(0)[:4, :4].log()


if __name__ == "__main__":
    schedule, denoiser = Schedule(T), Denoiser()
    real = train(denoiser, schedule)
    fake = sample(denoiser.eval(), schedule, 16)
    print(f"samples: mean {fake.mean().item():+.3f} (data {real.mean().item():+.3f}), std {fake.std().item():.3f} "
          f"(data {real.std().item():.3f}), spectrum gap {(spectrum(fake) - spectrum(real)).abs().mean().item():.2f}")
