"""DDPM on 2-d point clouds: training with EMA weights, previews sampled during training."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

T = 40
STEPS = 60
PREVIEW_EVERY = 30


class Schedule(nn.Module):
    def __init__(self, steps):
        super().__init__()
        betas = torch.linspace(1e-3, 0.2, steps)
        bar = torch.cumprod(1 - betas, 0)
        self.register_buffer("betas", betas)
        self.register_buffer("bar", bar)

    def noise(self, x, t, eps):
        a = self.bar[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * eps

    def reverse(self, x, t, eps, z):
        b = self.betas.index_select(0, t)
        a = self.bar.index_select(0, t)
        mean = (x - b / (1 - a).sqrt() * eps) / (1 - b).sqrt()
        return mean + torch.where(t > 0, b.sqrt(), torch.zeros_like(b)) * z


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.register_buffer("freqs", torch.exp(-math.log(1000.0) * torch.arange(16) / 16))
        self.a = nn.Linear(2 + 32, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, 2)

    def forward(self, x, t):
        ang = t[:, None].float() * self.freqs
        emb = torch.cat([ang.sin(), ang.cos()], -1)
        h = F.silu(self.a(torch.cat([x, emb], -1)))
        return self.c(h + F.silu(self.b(h)))


def moons(n):
    u = torch.rand(n) * math.pi
    flip = (torch.rand(n) < 0.5).float()
    x = torch.stack([u.cos() + flip, u.sin() * (1 - 2 * flip)], 1)
    return x + 0.03 * torch.randn(n, 2)


@torch.no_grad()
def preview(model, schedule, device, n=128):
    x = torch.randn(n, 2, device=device)
    for i in reversed(range(T)):
        t = torch.tensor([i]).to(device)
        eps = model(x, t.expand(n))
        x = schedule.reverse(x, t, eps, torch.randn_like(x))
        torch_xla.sync()
    return x.cpu()


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = Denoiser().to(device)
    ema = copy.deepcopy(model).requires_grad_(False)
    schedule = Schedule(T).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    for step in range(STEPS):
        x = moons(256).to(device)
        t = torch.randint(0, T, (256,)).to(device)
        eps = torch.randn_like(x)
        loss = F.mse_loss(model(schedule.noise(x, t, eps), t), eps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warmup.step()
        update_ema(ema, model, decay=min(0.99, (2 + step) / (10 + step)))
        torch_xla.sync()
        if (step + 1) % PREVIEW_EVERY == 0:
            points = preview(ema, schedule, device)
            print(f"step {step + 1} loss {loss.item():.4f} spread {points.std().item():.3f}")


if __name__ == "__main__":
    main()
