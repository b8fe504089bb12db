"""Hamiltonian Monte Carlo for a hierarchical logistic regression; the potential is compiled (aot_eager)."""
import math
import time

import torch

GROUPS, COLUMNS, ROWS = 12, 6, 1200
WARMUP, DRAWS, CHAINS, LEAPS = 120, 120, 4, 12


def simulate(seed=2):
    gen = torch.Generator().manual_seed(seed)
    group = torch.randint(GROUPS, (ROWS,), generator=gen)
    x = torch.randn(ROWS, COLUMNS, generator=gen)
    beta = torch.linspace(-1, 1, COLUMNS)
    offset = 0.7 * torch.randn(GROUPS, generator=gen)
    y = (torch.rand(ROWS, generator=gen) < torch.sigmoid(x @ beta + offset[group])).float()
    return x, y, group, beta


def unpack(q):
    return q[:, :COLUMNS], q[:, COLUMNS:COLUMNS + GROUPS], q[:, -1]


class Posterior:
    def __init__(self, x, y, group):
        self.x, self.y = x, y
        self.onehot = torch.nn.functional.one_hot(group, GROUPS).float()
        self.evaluations = 0
        self.compiled = torch.compile(self.potential, backend="aot_eager")

    def potential(self, q):
        """Negative log posterior of each chain's position."""
        beta, raw, log_tau = unpack(q)
        offset = raw * log_tau.exp()[:, None]
        logits = beta @ self.x.T + offset @ self.onehot.T
        likelihood = (torch.nn.functional.logsigmoid(logits) - (1 - self.y) * logits).sum(1)
        prior = -0.5 * (beta ** 2).sum(1) - 0.5 * (raw ** 2).sum(1) - 0.5 * log_tau ** 2
        return -(likelihood + prior)

    def gradient(self, q):
        q = q.detach().requires_grad_(True)
        self.evaluations += 1
        u = self.compiled(q)
        (g,) = torch.autograd.grad(u.sum(), q)
        return u.detach(), g


def leapfrog(posterior, q, p, eps, g):
    p = p - 0.5 * eps * g
    for i in range(LEAPS):
        q = q + eps * p
        u, g = posterior.gradient(q)
        if i < LEAPS - 1:
            p = p - eps * g
    return q, p - 0.5 * eps * g, u, g


class DualAveraging:
    """Step length for a wanted rate of acceptance."""

    def __init__(self, start, target=0.8):
        self.mu, self.target = math.log(2 * start), target
        self.h, self.log_bar, self.t = 0.0, 0.0, 0

    def update(self, accepted):
        self.t += 1
        w = 1 / (self.t + 10)
        self.h = (1 - w) * self.h + w * (self.target - accepted)
        log_eps = self.mu - math.sqrt(self.t) / 0.3 * self.h
        k = self.t ** -0.75
        self.log_bar = k * log_eps + (1 - k) * self.log_bar
        return math.exp(log_eps)


def sample(posterior, q, draws, warmup, eps=0.05):
    adapt, kept, accepted = DualAveraging(eps), [], 0.0
    u, g = posterior.gradient(q)
    for it in range(warmup + draws):
        p = torch.randn_like(q)
        qn, pn, un, gn = leapfrog(posterior, q, p, eps, g)
        log_ratio = u + 0.5 * (p ** 2).sum(1) - un - 0.5 * (pn ** 2).sum(1)
        rate = log_ratio.clamp_max(0).exp().nan_to_num(0.0)
        take = torch.rand(CHAINS) < rate
        q = torch.where(take[:, None], qn, q)
        u, g = torch.where(take, un, u), torch.where(take[:, None], gn, g)
        if it < warmup:
            eps = adapt.update(rate.mean().item())
            if it == warmup - 1:
                eps = math.exp(adapt.log_bar)
        else:
            kept.append(q)
            accepted += rate.mean().item()
    return torch.stack(kept), accepted / draws, eps


def main():
    torch.manual_seed(0)
    x, y, group, beta = simulate()
    posterior = Posterior(x, y, group)
    start = time.perf_counter()
    q = 0.1 * torch.randn(CHAINS, COLUMNS + GROUPS + 1)
    draws, rate, eps = sample(posterior, q, DRAWS, WARMUP)
    mean = draws[..., :COLUMNS].mean((0, 1))
    between = draws.mean(0).var(0)
    within = draws.var(0).mean(0)
    rhat = ((within * (DRAWS - 1) / DRAWS + between) / within).sqrt().max()
    print(f"accepted {rate:.2f}, step {eps:.4f}, {posterior.evaluations} evaluations, {time.perf_counter() - start:.1f} s")
    print("true beta     ", [round(b, 2) for b in beta.tolist()])
    print("posterior mean", [round(b, 2) for b in mean.tolist()], f"R-hat {rhat:.3f}")


if __name__ == "__main__":
    main()
