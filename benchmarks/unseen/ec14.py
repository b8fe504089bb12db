"""Identifies the stiffness of a hanging cloth by differentiating through a mass-spring simulation."""
import argparse
import time

import torch
import torch.nn as nn


def grid_springs(n):
    """Structural and shear springs of an n x n grid as index pairs with rest lengths."""
    pairs = []
    for r in range(n):
        for c in range(n):
            for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
                if 0 <= r + dr < n and 0 <= c + dc < n:
                    pairs.append((r * n + c, (r + dr) * n + c + dc, (dr * dr + dc * dc) ** 0.5 / (n - 1)))
    a, b, rest = zip(*pairs)
    return torch.tensor(a), torch.tensor(b), torch.tensor(rest)


class Cloth(nn.Module):
    def __init__(self, n=10, dt=0.01):
        super().__init__()
        a, b, rest = grid_springs(n)
        self.n, self.dt = n, dt
        inc = torch.zeros(len(a), n * n)
        inc[torch.arange(len(a)), a], inc[torch.arange(len(a)), b] = -1.0, 1.0
        self.register_buffer("inc", inc)
        self.register_buffer("rest", rest)
        self.register_buffer("shear", (rest > 1.2 / (n - 1)).float())
        free = torch.ones(n * n, 1)
        free[0] = free[n - 1] = 0.0                     # two corners are pinned
        self.register_buffer("free", free)
        self.register_buffer("gravity", torch.tensor([0.0, 0.0, -1.0]))
        self.log_k = nn.Parameter(torch.tensor([3.0, 2.0]))     # structural, shear
        self.log_damp = nn.Parameter(torch.tensor(-1.5))

    def substep(self, pos, vel):
        d = self.inc @ pos                              # scenes, springs, 3
        length = (d * d).sum(-1, keepdim=True).add(1e-8).sqrt()
        k = self.log_k[0].exp() * (1 - self.shear) + self.log_k[1].exp() * self.shear
        force = -k[:, None] * (length - self.rest[:, None]) * d / length
        acc = self.inc.T @ force * 4.0 + self.gravity - self.log_damp.exp() * vel
        vel = (vel + self.dt * acc) * self.free
        return pos + self.dt * vel, vel

    def forward(self, pos, vel, substeps: int):
        for _ in range(substeps):
            pos, vel = self.substep(pos, vel)
        return pos, vel


def start_scenes(n, count, seed):
    g = torch.Generator().manual_seed(seed)
    u = torch.linspace(0, 1, n)
    pos = torch.stack([u.repeat(n), u.repeat_interleave(n), torch.zeros(n * n)], -1)
    pos = pos.repeat(count, 1, 1)
    bump = 0.1 * torch.randn(count, 3, generator=g)
    pos[..., 2] += (bump[:, :1] * torch.sin(3.14 * pos[..., 0]) + bump[:, 1:2] * torch.sin(3.14 * pos[..., 1]))
    vel = torch.zeros_like(pos)
    vel[..., 0] = bump[:, 2:] * 3 * pos[..., 1]
    return pos, vel


def observe(frames, substeps, pos, vel, log_k, log_damp):
    """The 'measured' motion: simulated with the true constants, plus camera noise."""
    truth = Cloth()
    with torch.no_grad():
        truth.log_k.copy_(torch.tensor(log_k))
        truth.log_damp.fill_(log_damp)
        out = []
        for _ in range(frames):
            pos, vel = truth(pos, vel, substeps)
            out.append(pos + 0.002 * torch.randn_like(pos))
    return torch.stack(out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scenes", type=int, default=4)
    ap.add_argument("--frames", type=int, default=2)
    ap.add_argument("--substeps", type=int, default=20)
    ap.add_argument("--iters", type=int, default=45)
    a = ap.parse_args()
    torch.manual_seed(0)
    pos0, vel0 = start_scenes(10, a.scenes, 1)
    true_k, true_damp = [3.6, 2.6], -0.7
    target = observe(a.frames, a.substeps, pos0, vel0, true_k, true_damp)
    cloth = Cloth()
    simulate = torch.compile(cloth, backend="aot_eager")
    opt = torch.optim.Adam(cloth.parameters(), 0.05)
    t0 = time.time()
    for it in range(1, a.iters + 1):
        pos, vel, loss = pos0, vel0, 0.0
        for frame in range(a.frames):
            pos, vel = simulate(pos, vel, a.substeps)
            loss = loss + (pos - target[frame]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cloth.parameters(), 1.0)
        opt.step()
        if it % 15 == 0:
            print(f"iter {it} loss {loss.item():.2e} log k {[round(v, 2) for v in cloth.log_k.tolist()]} "
                  f"(true {true_k}) damping {cloth.log_damp.item():.2f} (true {true_damp}) "
                  f"{time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
