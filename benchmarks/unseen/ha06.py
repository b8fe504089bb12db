"""A diffusion model over 2-D point patterns (two moons, rings), sampled with DDIM under several guidance scales."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(3)
DEVICE = xm.xla_device()
T = 200
BATCH = 512


def sample_data(n):
    """Class 0: ring of radius 2. Class 1: two moons."""
    y = torch.randint(0, 2, (n,))
    ang = torch.rand(n) * 2 * math.pi
    ring = 2 * torch.stack([ang.cos(), ang.sin()], 1)
    half = torch.rand(n) * math.pi
    side = (torch.rand(n) < 0.5).float() * 2 - 1
    moons = torch.stack([half.cos() * 1.2 - 0.6 * side, side * half.sin() * 1.2 - 0.3 * side], 1)
    x = torch.where(y[:, None] == 0, ring, moons) + 0.05 * torch.randn(n, 2)
    return x, y


class NoiseSchedule:
    """Cosine schedule; the table lives on the device, for it is gathered in training."""

    def __init__(self, steps, device):
        s = torch.linspace(0, 1, steps + 1)
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.steps = steps
        self.alpha_bar = (f / f[0]).clamp(1e-4, 0.9999).to(device)

    def noise(self, x0, t, eps):
        a = self.alpha_bar[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * eps


class Denoiser(nn.Module):
    def __init__(self, width=128, depth=2, n_classes=2):
        super().__init__()
        self.null_class = n_classes
        self.cls = nn.Embedding(n_classes + 1, width)
        self.inp = nn.Linear(2, width)
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
            for _ in range(depth))
        self.out = nn.Linear(width, 2)
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(1000), 16)))

    def forward(self, x, t, y):
        phase = (t.float() / T)[:, None] * self.freqs
        h = self.inp(x) + self.time(torch.cat([phase.sin(), phase.cos()], 1)) + self.cls(y)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


def train(model, sched, steps=250):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    avg = torch.zeros((), device=DEVICE)
    for step in range(1, steps + 1):
        x, y = sample_data(BATCH)
        drop = torch.rand(BATCH) < 0.1
        y = torch.where(drop, torch.full_like(y, model.null_class), y)
        x, y = x.to(DEVICE), y.to(DEVICE)
        t = torch.randint(1, T + 1, (BATCH,)).to(DEVICE)
        eps = torch.randn(BATCH, 2).to(DEVICE)
        loss = F.mse_loss(model(sched.noise(x, t, eps), t, y), eps)
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        avg = avg + loss.detach()
        xm.mark_step()
        if step % 50 == 0:
            print(f"step {step}: mse {avg.item() / 50:.4f}")
            avg = torch.zeros((), device=DEVICE)


@torch.no_grad()
def ddim(model, sched, label, n, guidance, n_steps=12):
    x = torch.randn(n, 2).to(DEVICE)
    y = torch.full((n,), label, device=DEVICE)
    null = torch.full((n,), model.null_class, device=DEVICE)
    ts = torch.linspace(T, 0, n_steps + 1).round().long().tolist()
    for t, t_next in zip(ts[:-1], ts[1:]):
        tt = torch.tensor([t]).to(DEVICE).expand(n)
        e_cond, e_null = model(x, tt, y), model(x, tt, null)
        eps = e_null + guidance * (e_cond - e_null)
        a, a_next = sched.alpha_bar[t], sched.alpha_bar[t_next]
        x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-4, 4)
        x = a_next.sqrt() * x0 + (1 - a_next).sqrt() * eps
        xm.mark_step()
    return x


def ring_error(points):
    return (points.norm(dim=1) - 2).abs().mean().item()


if __name__ == "__main__":
    sched = NoiseSchedule(T, DEVICE)
    net = Denoiser().to(DEVICE)
    begin = time.time()
    train(net, sched)
    print(f"trained in {time.time() - begin:.1f} s")
    net.eval()
    for scale in (1.5, 2.5, 4.0):
        begin = time.time()
        pts = ddim(net, sched, label=0, n=512, guidance=scale).cpu()
        print(f"guidance {scale}: mean distance from the ring {ring_error(pts):.3f} ({time.time() - begin:.1f} s)")
