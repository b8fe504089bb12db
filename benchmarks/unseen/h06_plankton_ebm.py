"""Energy-based model of plankton silhouettes: contrastive divergence with a buffer of samples, and fresh chains as a check."""
import gc
import math
import resource
from contextlib import contextmanager

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

SIDE = 16


def silhouettes(n, generator):
    """Ellipses with a flagellum."""
    ax = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(ax, ax, indexing="ij")
    a = 0.35 + 0.3 * torch.rand(n, 1, 1, generator=generator)
    b = 0.2 + 0.15 * torch.rand(n, 1, 1, generator=generator)
    turn = math.pi * torch.rand(n, 1, 1, generator=generator)
    u, v = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
    body = torch.sigmoid(12 * (1 - (u / a).square() - (v / b).square()))
    tail = torch.exp(-((v - 0.1 * torch.sin(8 * u)) / 0.08).square()) * (u > 0)
    return (torch.maximum(body, 0.8 * tail) * 2 - 1).unsqueeze(1)


class Energy(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.SiLU())
        self.out = nn.Sequential(nn.Flatten(), nn.Linear(2 * width * 16, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.out(self.conv(x)).squeeze(1)


def langevin_step(energy, x, size, noise):
    x = x.detach().requires_grad_(True)
    grad, = torch.autograd.grad(energy(x).sum(), x)
    return (x - size * grad.clamp(-0.05, 0.05) + noise * torch.randn_like(x)).clamp(-1, 1).detach()


class SampleBuffer:
    """Persistent chains; a few of them start anew each time."""

    def __init__(self, size, device):
        self.chains = torch.rand(size, 1, SIDE, SIDE, device=device) * 2 - 1
        self.device = device

    def draw(self, n, fresh=0.05):
        rows = torch.randperm(self.chains.shape[0])[:n].to(self.device)
        x = self.chains[rows]
        anew = torch.rand(n, 1, 1, 1, device=self.device) < fresh
        return torch.where(anew, torch.rand_like(x) * 2 - 1, x), rows

    def put(self, rows, x):
        self.chains.index_copy_(0, rows, x)


@contextmanager
def flat_memory(log):
    """Keeps the resident set from creeping up in long runs."""
    yield
    gc.collect()
    log.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


class Learner:
    def __init__(self, device, inner=4):
        self.device, self.inner = device, inner
        self.energy = Energy().to(device)
        self.opt = torch.optim.Adam(self.energy.parameters(), lr=5e-4, betas=(0.0, 0.99))
        self.buffer = SampleBuffer(256, device)
        torch_xla.sync()

    def step(self, real):
        fake, rows = self.buffer.draw(real.shape[0])
        for _ in range(self.inner):
            fake = langevin_step(self.energy, fake, 4.0, 0.01)
        self.buffer.put(rows, fake)
        e_real, e_fake = self.energy(real), self.energy(fake)
        loss = (e_real - e_fake).mean() + 0.1 * (e_real.square() + e_fake.square()).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return torch.stack([loss.detach(), (e_fake - e_real).detach().mean()])

    def fresh_samples(self, n=16, steps=20):
        """Chains from noise, with the step size cooled down."""
        x = torch.rand(n, 1, SIDE, SIDE, device=self.device) * 2 - 1
        for k in range(steps):
            share = k / steps
            x = langevin_step(self.energy, x, 8.0 * (1 - 0.8 * share), 0.02 * (1 - 0.9 * share))
        xm.mark_step()
        return x


def filled(x):
    return (x > 0).float().mean((1, 2, 3)).cpu()


def main(steps=90, batch=32):
    torch.manual_seed(2)
    device = torch_xla.device()
    learner = Learner(device)
    generator = torch.Generator().manual_seed(2)
    memory, trace = [], []
    for step in range(1, steps + 1):
        with flat_memory(memory):
            real = silhouettes(batch, generator)
            trace.append(learner.step(real.to(device)))
            xm.mark_step()
        if step % 45 == 0:
            loss, gap = torch.stack(trace).mean(0).tolist()
            trace.clear()
            area = filled(learner.fresh_samples())
            print(f"{step:4d} loss {loss:.4f} gap {gap:.4f} filled {area.mean():.3f} peak {memory[-1] // 1024} MiB")


if __name__ == "__main__":
    main()
