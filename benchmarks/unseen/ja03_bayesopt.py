"""Bayesian optimisation of a simulated reactor's yield with a Gaussian process.

Each round fits nothing but the posterior (length scales come from a short grid at the start),
scores a random set of candidate settings by expected improvement and runs the "experiment"
at the best one.
"""
import math

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm

ROUNDS = 14
INITIAL = 12
CANDIDATES = 400
NOISE = 0.02
LENGTH_GRID = (0.15, 0.25, 0.4)


class Reactor:
    """Noisy black box on the unit cube: temperature, residence time, concentration."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.calls = 0

    def __call__(self, setting):
        self.calls += 1
        temp, time, conc = setting
        rate = 4 * math.exp(-1.2 / (0.3 + temp))
        product = conc * (1 - math.exp(-rate * (0.2 + 2 * time)))
        side = 0.9 * temp ** 3 * time + 0.25 * conc ** 4
        return product - side + NOISE * self.rng.normal()


def matern(a, b, length):
    dist = ((a[:, None] - b[None]).pow(2).sum(-1) + 1e-10).sqrt() / length
    r = math.sqrt(5) * dist
    return (1 + r + r * r / 3) * torch.exp(-r)


class GaussianProcess:
    def __init__(self, device, length=0.25):
        self.device = device
        self.length = length
        self.x = torch.zeros(0, 3, device=device)
        self.y = torch.zeros(0, device=device)

    def add(self, x, y):
        self.x = torch.cat([self.x, x.to(self.device)])
        self.y = torch.cat([self.y, y.to(self.device)])

    def factor(self, length):
        n = self.x.shape[0]
        k = matern(self.x, self.x, length) + (NOISE ** 2 + 1e-4) * torch.eye(n, device=self.device)
        return torch.linalg.cholesky(k)

    def standardised(self):
        mean, std = self.y.mean(), self.y.std(unbiased=False) + 1e-6
        return (self.y - mean) / std, mean, std

    def log_evidence(self, length):
        chol = self.factor(length)
        target, _, _ = self.standardised()
        white = torch.linalg.solve_triangular(chol, target[:, None], upper=False)
        return -0.5 * white.pow(2).sum() - chol.diagonal().log().sum()

    def posterior(self, query):
        chol = self.factor(self.length)
        target, mean, std = self.standardised()
        cross = matern(self.x, query, self.length)
        both = torch.linalg.solve_triangular(chol, torch.cat([target[:, None], cross], 1), upper=False)
        mu = both[:, 1:].T @ both[:, 0]
        var = (1 - both[:, 1:].pow(2).sum(0)).clamp_min(1e-6)
        return mu * std + mean, var.sqrt() * std


def expected_improvement(mu, sigma, best):
    z = (mu - best) / sigma
    cdf = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    pdf = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return sigma * (z * cdf + pdf)


def choose_length(gp):
    scores = torch.stack([gp.log_evidence(length) for length in LENGTH_GRID])
    return LENGTH_GRID[int(scores.argmax())]


def main():
    torch.manual_seed(5)
    reactor = Reactor(5)
    gp = GaussianProcess(torch_xla.device())
    start = torch.rand(INITIAL, 3)
    gp.add(start, torch.tensor([reactor(s) for s in start.tolist()]))
    gp.length = choose_length(gp)
    print(f"length scale {gp.length}, best of {INITIAL} random settings {gp.y.max().item():.4f}")

    for turn in range(ROUNDS):
        query = torch.rand(CANDIDATES, 3).to(gp.device)
        mu, sigma = gp.posterior(query)
        score = expected_improvement(mu, sigma, gp.y.max())
        xm.mark_step()
        setting = query[score.argmax()].cpu()        # the experiment happens on the host
        outcome = reactor(setting.tolist())
        gp.add(setting[None], torch.tensor([outcome]))
        if turn % 4 == 3:
            print(f"experiment {reactor.calls}: best yield {gp.y.max().item():.4f}", flush=True)

    best = gp.x[gp.y.argmax()].tolist()
    print("best setting", [round(v, 3) for v in best])


if __name__ == "__main__":
    main()
