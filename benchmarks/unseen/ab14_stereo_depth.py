"""Self-made training step for a patch matcher: forward and update compiled with inductor."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PATCH, SHIFTS = 9, 6


def pairs(n, gen):
    wide = torch.randn(n, PATCH, PATCH + SHIFTS, generator=gen)
    wide = F.avg_pool1d(wide, 3, 1, 1)
    shift = torch.randint(0, SHIFTS, (n,), generator=gen)
    cols = torch.arange(PATCH).unsqueeze(0) + shift.unsqueeze(1)
    right = torch.gather(wide, 2, cols.unsqueeze(1).expand(-1, PATCH, -1))
    return wide, right + 0.05 * torch.randn(right.shape, generator=gen), shift


class Matcher(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(PATCH * PATCH, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, wide, right):
        views = wide.unfold(2, PATCH, 1)[:, :, :SHIFTS].permute(0, 2, 1, 3).flatten(2)
        a = F.normalize(self.enc(views), dim=-1)
        b = F.normalize(self.enc(right.flatten(1)), dim=-1)
        return self.scale * torch.einsum("nsd,nd->ns", a, b)


class Lion:
    """Sign momentum with decoupled decay."""

    def __init__(self, params, lr, betas=(0.9, 0.99), decay=0.01):
        self.params = [p for p in params if p.requires_grad]
        self.momentum = [torch.zeros_like(p) for p in self.params]
        self.lr, self.betas, self.decay = lr, betas, decay
        self.updates = 0
        self._fused = torch.compile(self._apply)

    def _apply(self, params, grads, momentum, t):
        b1, b2 = self.betas
        ramp = 1.0 - b2 ** t
        for p, g, m in zip(params, grads, momentum):
            direction = torch.sign(b1 * m + (1 - b1) * g)
            p.mul_(1 - self.lr * self.decay)
            p.sub_(self.lr * ramp * direction)
            m.lerp_(g, 1 - b2)

    @torch.no_grad()
    def step(self):
        self.updates += 1
        self._fused(self.params, [p.grad for p in self.params], self.momentum, self.updates)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class WarmCosine:
    def __init__(self, opt, peak, warm, total):
        self.opt, self.peak, self.warm, self.total = opt, peak, warm, total
        self.t = 0
        self.step()

    def step(self):
        self.t += 1
        if self.t <= self.warm:
            self.opt.lr = self.peak * self.t / self.warm
        else:
            u = (self.t - self.warm) / (self.total - self.warm)
            self.opt.lr = self.peak * 0.5 * (1 + math.cos(math.pi * u))


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    net = Matcher()
    forward = torch.compile(net)
    total = 400
    opt = Lion(net.parameters(), lr=1e-3)
    sched = WarmCosine(opt, 1e-3, 40, total)
    held = pairs(64, gen)
    for step in range(1, total + 1):
        wide, right, shift = pairs(64, gen)
        loss = F.cross_entropy(forward(wide, right), shift)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 100 == 0:
            with torch.no_grad():
                acc = (forward(*held[:2]).argmax(-1) == held[2]).float().mean()
            print(f"step {step} lr {opt.lr:.2e} loss {loss.item():.4f} accuracy {acc.item():.3f}")


if __name__ == "__main__":
    main()
