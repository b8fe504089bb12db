"""Hamiltonian Monte Carlo for a hierarchical logistic regression, many chains at once, on XLA.
The step size is tuned during warm-up; draws are thinned and kept on the host."""
import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch_xla


@dataclass
class Settings:
    chains: int = 32
    warmup_rounds: int = 8
    round_len: int = 15
    draws: int = 300
    thin: int = 5
    leapfrog: int = 5
    target: float = 0.8


def simulate(n, d, groups, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    g = rng.integers(0, groups, n)
    beta = rng.normal(0, 1, d)
    offset = rng.normal(0, 0.7, groups)
    p = 1 / (1 + np.exp(-(x @ beta + offset[g])))
    return x.astype(np.float32), g, (rng.random(n) < p).astype(np.float32), beta, offset


class Posterior:
    """Non-centred: theta = (beta[d], z[groups], log_tau)."""

    def __init__(self, x, g, y, groups, device):
        onehot = np.eye(groups, dtype=np.float32)[g]
        self.d, self.groups = x.shape[1], groups
        self.x, self.z, self.y = (torch.from_numpy(a).to(device) for a in (x, onehot, y))

    @property
    def size(self):
        return self.d + self.groups + 1

    def log_density(self, theta):
        beta, z, log_tau = theta.split([self.d, self.groups, 1], 1)
        logit = beta @ self.x.T + (z * log_tau.exp()) @ self.z.T
        likelihood = -(torch.nn.functional.softplus(logit) - self.y * logit).sum(1)
        return likelihood - 0.5 * (beta ** 2).sum(1) / 4 - 0.5 * (z ** 2).sum(1) - 0.5 * log_tau.squeeze(1) ** 2

    def value_and_grad(self, theta):
        theta = theta.detach().requires_grad_(True)
        value = self.log_density(theta)
        grad, = torch.autograd.grad(value.sum(), theta)
        return value.detach(), grad


class HMC:
    def __init__(self, posterior, s, device):
        self.p, self.s, self.device = posterior, s, device
        self.theta = 0.1 * torch.randn(s.chains, posterior.size, device=device)
        self.value, self.grad = posterior.value_and_grad(self.theta)
        self.log_step = torch.tensor(math.log(0.05)).to(device)
        torch_xla.sync()

    def transition(self):
        eps = self.log_step.exp()
        momentum = torch.randn_like(self.theta)
        theta, grad = self.theta, self.grad
        energy = self.value - 0.5 * (momentum ** 2).sum(1)
        p = momentum + 0.5 * eps * grad
        for i in range(self.s.leapfrog):
            theta = theta + eps * p
            value, grad = self.p.value_and_grad(theta)
            p = p + (eps if i < self.s.leapfrog - 1 else 0.5 * eps) * grad
        ratio = (value - 0.5 * (p ** 2).sum(1) - energy).clamp(max=0).exp()
        take = torch.rand(self.s.chains, device=self.device) < ratio
        self.theta = torch.where(take[:, None], theta, self.theta)
        self.grad = torch.where(take[:, None], grad, self.grad)
        self.value = torch.where(take, value, self.value)
        return ratio.mean()

    def warm_up(self):
        for r in range(self.s.warmup_rounds):
            total = torch.zeros((), device=self.device)
            for _ in range(self.s.round_len):
                total += self.transition()
                torch_xla.sync()
            rate = total.item() / self.s.round_len
            step = self.log_step.item() + 1.5 * (rate - self.s.target) / math.sqrt(r + 1)
            self.log_step = torch.tensor(step).to(self.device)
            print(f"  round {r} acceptance {rate:.2f} next step size {math.exp(step):.4f}", flush=True)

    def sample(self):
        kept, rate = [], torch.zeros((), device=self.device)
        for i in range(self.s.draws):
            rate += self.transition()
            torch_xla.sync()
            if (i + 1) % self.s.thin == 0:
                kept.append(self.theta.cpu())
        return torch.stack(kept), rate.item() / self.s.draws


def r_hat(draws):
    n = draws.shape[0]
    within, between = draws.var(0).mean(0), draws.mean(0).var(0)
    return (((n - 1) / n * within + between) / within).sqrt()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    x, g, y, beta, offset = simulate(args.rows, 10, 8, seed=1)
    t0 = time.time()
    hmc = HMC(Posterior(x, g, y, 8, device), Settings(), device)
    hmc.warm_up()
    draws, rate = hmc.sample()
    mean = draws.mean((0, 1))
    error = np.abs(mean[:10].numpy() - beta).mean()
    print(f"acceptance {rate:.2f}, r-hat max {r_hat(draws).max():.3f}, |beta error| {error:.3f}, "
          f"tau {mean[-1].exp():.2f} (true {offset.std():.2f}), {time.time() - t0:.1f} s")


if __name__ == "__main__":
    main()
