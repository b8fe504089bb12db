"""Physics-informed network for the viscous Burgers equation, hard boundary conditions, compiled loss."""
import math
import time

import torch
import torch.nn as nn

NU = 0.05 / math.pi


class Field(nn.Module):
    """u(t, x) on [0,1]x[-1,1] with u(0,x) = -sin(pi x) and u(t,+-1) = 0 built in."""

    def __init__(self, width=32, depth=4):
        super().__init__()
        dims = [2] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.out = nn.Linear(width, 1)

    def net(self, t, x):
        h = torch.stack([2 * t - 1, x], -1)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.out(h).squeeze(-1)

    def forward(self, t, x):
        return -torch.sin(math.pi * x) + t * (1 - x * x) * self.net(t, x)


def jet(model, t, x):
    """Propagates value, first derivatives and u_xx by hand through the tanh layers."""
    h = torch.stack([2 * t - 1, x], -1)
    zero, one = torch.zeros_like(t), torch.ones_like(t)
    h_t, h_x, h_xx = torch.stack([2 * one, zero], -1), torch.stack([zero, one], -1), torch.zeros_like(h)
    for layer in model.layers:
        a, a_t, a_x, a_xx = layer(h), h_t @ layer.weight.T, h_x @ layer.weight.T, h_xx @ layer.weight.T
        h = torch.tanh(a)
        d = 1 - h * h
        h_t, h_x, h_xx = d * a_t, d * a_x, d * a_xx - 2 * h * d * a_x * a_x
    w = model.out.weight[0]
    n, n_t, n_x, n_xx = model.out(h).squeeze(-1), h_t @ w, h_x @ w, h_xx @ w
    s, c = torch.sin(math.pi * x), torch.cos(math.pi * x)
    g = 1 - x * x
    u = -s + t * g * n
    u_t = g * n + t * g * n_t
    u_x = -math.pi * c + t * (g * n_x - 2 * x * n)
    u_xx = math.pi ** 2 * s + t * (g * n_xx - 4 * x * n_x - 2 * n)
    return u, u_t, u_x, u_xx


class Problem:
    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.model = Field()
        self.opt = torch.optim.Adam(self.model.parameters(), 2e-3)
        self.n = 512

    def sample(self, n):
        return torch.rand(n), 2 * torch.rand(n) - 1

    def residual(self, t, x):
        u, u_t, u_x, u_xx = jet(self.model, t, x)
        return u_t + u * u_x - NU * u_xx

    def make_loss(self):
        """Causal weighting (Wang et al.): late times count once early ones are solved."""
        def loss(t, x, eps):
            return (torch.exp(-eps * t) * self.residual(t, x).pow(2)).mean()
        return torch.compile(loss, backend="aot_eager")

    @torch.no_grad()
    def refine(self, n_keep, pool=600):
        """Residual-adaptive points: keep the worst of a larger draw."""
        t, x = self.sample(pool)
        scored = []
        for i in range(pool):
            r = self.residual(t[i:i + 1], x[i:i + 1]).abs()
            scored.append((r.item(), i))
        worst = torch.tensor([i for _, i in sorted(scored, reverse=True)[:n_keep]])
        return t[worst], x[worst]

    def train(self, rounds=24, steps=45):
        loss_fn, eps = self.make_loss(), torch.tensor(0.0)
        for r in range(rounds):
            t0 = time.time()
            eps.fill_(5.0 * (1 - r / rounds))
            hard_t, hard_x = self.refine(self.n // 4)
            for _ in range(steps):
                t, x = self.sample(self.n - len(hard_t))
                loss = loss_fn(torch.cat([t, hard_t]), torch.cat([x, hard_x]), eps)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            if r % 4 == 3:
                print(f"round {r} eps {eps.item():.2f} residual {loss.item():.4f} "
                      f"{time.time() - t0:.2f}s", flush=True)


@torch.no_grad()
def reference(nx=401, t_end=0.5):
    """Explicit finite differences, as a check of the learned field."""
    x = torch.linspace(-1, 1, nx, dtype=torch.float64)
    u, dx = -torch.sin(math.pi * x), 2 / (nx - 1)
    dt = 0.4 * min(dx * dx / (2 * NU), dx)
    for _ in range(int(t_end / dt)):
        f = u * u / 2
        adv = torch.where(u[1:-1] > 0, f[1:-1] - f[:-2], f[2:] - f[1:-1]) / dx
        u[1:-1] += dt * (NU * (u[2:] - 2 * u[1:-1] + u[:-2]) / dx ** 2 - adv)
    return x.float(), u.float()


if __name__ == "__main__":
    p = Problem()
    p.train()
    x, u = reference()
    with torch.no_grad():
        pred = p.model(torch.full_like(x, 0.5), x)
    print(f"relative error at t=0.5: {((pred - u).norm() / u.norm()).item():.3f}")
