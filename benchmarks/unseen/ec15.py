"""Motion forecasting: a transformer with stochastic depth continues joint-angle curves; judged by DTW."""
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Hyper:
    joints: int = 6
    past: int = 40
    future: int = 20
    dim: int = 48
    heads: int = 4
    depth: int = 5
    drop_path: float = 0.25
    epochs: int = 5
    batch: int = 64
    lr: float = 2e-3


def gaits(h, n, seed):
    """Periodic joint angles with a slowly varying cadence; the joints share phase and rhythm."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(h.past + h.future).float()
    cadence = 0.2 + 0.2 * torch.rand(n, 1, generator=g)
    drift = 0.002 * torch.randn(n, 1, generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g) + cadence * t + drift * t * t / 2
    lag = torch.linspace(0, 2.5, h.joints)
    amp = 0.5 + torch.rand(n, 1, h.joints, generator=g)
    x = amp * torch.sin(phase[..., None] - lag) + 0.3 * torch.sin(2 * phase[..., None] + lag)
    x = x + 0.05 * torch.randn(x.shape, generator=g)
    return x[:, :h.past], x[:, h.past:]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        y = self.out(y)
        return y + self.down(F.gelu(self.up(self.n2(x + y))))


class Forecaster(nn.Module):
    def __init__(self, h: Hyper):
        super().__init__()
        self.h = h
        self.inp = nn.Linear(h.joints, h.dim)
        self.pos = nn.Parameter(0.02 * torch.randn(h.past, h.dim))
        self.blocks = nn.ModuleList(Block(h.dim, h.heads) for _ in range(h.depth))
        self.out = nn.Linear(h.dim, h.future * h.joints)

    def forward(self, x, keep):
        z = self.inp(x) + self.pos
        for i, block in enumerate(self.blocks):
            if keep[i]:
                z = z + block(z)
        y = self.out(z.mean(1) + z[:, -1]).view(len(x), self.h.future, self.h.joints)
        return y + x[:, -1:]

    def sample_depth(self, rng):
        """Stochastic depth (Huang et al.): deeper blocks are skipped more often."""
        p = self.h.drop_path
        return tuple(rng.random() >= p * (i + 1) / self.h.depth for i in range(self.h.depth))


def dtw(a, b):
    """Dynamic time warping distance of two curves (time, joints)."""
    cost = torch.cdist(a, b).tolist()
    n, m = len(cost), len(cost[0])
    acc = [[float("inf")] * (m + 1) for _ in range(n + 1)]
    acc[0][0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            acc[i][j] = cost[i - 1][j - 1] + min(acc[i - 1][j], acc[i][j - 1], acc[i - 1][j - 1])
    return float(acc[n][m]) / (n + m)


@torch.no_grad()
def evaluate(model, x, y, h, curves=40):
    model.eval()
    pred = model(x, (True,) * h.depth)
    model.train()
    mae = (pred - y).abs().mean().item()
    return mae, sum(dtw(p, q) for p, q in zip(pred[:curves], y[:curves])) / curves


if __name__ == "__main__":
    torch.manual_seed(0)
    h, rng = Hyper(), random.Random(0)
    x, y = gaits(h, 2048, 0)
    test_x, test_y = gaits(h, 256, 1)
    model = Forecaster(h)
    fast = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), h.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, h.epochs)
    for epoch in range(h.epochs):
        t0, total = time.time(), torch.zeros(())
        for idx in torch.randperm(len(x)).split(h.batch):
            loss = F.smooth_l1_loss(fast(x[idx], model.sample_depth(rng)), y[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.detach()
        sched.step()
        mae, warp = evaluate(model, test_x, test_y, h)
        print(f"epoch {epoch} loss {total.item() / (len(x) // h.batch):.4f} test mae {mae:.3f} "
              f"dtw {warp:.3f} {time.time() - t0:.1f}s", flush=True)
