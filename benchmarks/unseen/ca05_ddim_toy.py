"""Denoising diffusion on 2-d rings, sampled with DDIM at the end of each epoch."""
import math

import torch_xla
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm


class Schedule(nn.Module):
    def __init__(self, steps=200):
        super().__init__()
        t = torch.linspace(0, 1, steps + 1)
        abar = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        abar = (abar / abar[0]).clamp(1e-4, 1.0)
        self.steps = steps
        self.register_buffer("signal", abar.sqrt())
        self.register_buffer("noise", (1 - abar).sqrt())

    def corrupt(self, x, t, eps):
        return self.signal[t][:, None] * x + self.noise[t][:, None] * eps


class Denoiser(nn.Module):
    def __init__(self, width=64, freqs=8):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, 5, freqs)))
        self.inp = nn.Linear(2 + 2 * freqs, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        phase = t.float()[:, None] / 200 * self.freq
        h = torch.cat([x, phase.sin(), phase.cos()], -1)
        h = nn.functional.silu(self.inp(h))
        for layer in self.mid:
            h = h + nn.functional.silu(layer(h))
        return self.out(h)


def rings(n, g):
    angle = torch.rand(n, generator=g) * 2 * math.pi
    radius = torch.where(torch.rand(n, generator=g) < 0.5, 0.5, 1.0)
    xy = torch.stack([angle.cos(), angle.sin()], -1) * radius[:, None]
    return xy + 0.03 * torch.randn(n, 2, generator=g)


class DDIMSampler:
    def __init__(self, model, schedule, n_steps=20):
        self.model, self.schedule = model, schedule
        grid = torch.linspace(schedule.steps, 0, n_steps + 1).round().long()
        self.grid = grid.tolist()

    @torch.no_grad()
    def sample(self, n, device):
        s = self.schedule
        x = torch.randn(n, 2, device=device)
        t = torch.full((n,), s.steps, device=device)
        stride = self.grid[0] - self.grid[1]
        xm.mark_step()
        for now, prev in zip(self.grid[:-1], self.grid[1:]):
            eps = self.model(x, t)
            x0 = (x - s.noise[now] * eps) / s.signal[now]
            x0 = x0.clamp(-2, 2)
            x = s.signal[prev] * x0 + s.noise[prev] * eps
            t = t - stride
            xm.mark_step()
        return x.cpu()


def spread(points):
    radius = points.norm(dim=-1)
    return torch.minimum((radius - 0.5).abs(), (radius - 1).abs()).mean().item()


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    device = torch_xla.device()
    schedule = Schedule().to(device)
    model = Denoiser().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sampler = DDIMSampler(model, schedule)
    for epoch in range(2):
        epoch_loss = torch.zeros((), device=device)
        for _ in range(60):
            x = rings(256, g).to(device)
            t = torch.randint(1, schedule.steps + 1, (256,), generator=g).to(device)
            eps = torch.randn_like(x)
            loss = (model(schedule.corrupt(x, t, eps), t) - eps).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch_loss += loss.detach()
            xm.mark_step()
        model.eval()
        points = sampler.sample(256, device)
        model.train()
        print(f"epoch {epoch} loss {epoch_loss.item() / 60:.4f} off-ring {spread(points):.4f}")


if __name__ == "__main__":
    main()
