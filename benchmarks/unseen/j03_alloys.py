"""Bayesian optimisation of an alloy's hardness with a Gaussian process surrogate."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal
import torch_xla

ELEMENTS = ("Ni", "Cr", "Mo", "Nb", "Ti", "Al")


def furnace(composition, rng):
    """Stand-in for the laboratory: Vickers hardness of a composition (host)."""
    c = np.asarray(composition)
    ridge = np.sin(5 * c[:, 0]) * c[:, 3] + 2 * np.exp(-20 * ((c[:, 1:3] - 0.3) ** 2).sum(1))
    return (ridge + c[:, 5] * (1 - c[:, 4]) + 0.02 * rng.normal(size=len(c))).astype(np.float32)


def propose_pool(rng, n):
    return rng.dirichlet(np.ones(len(ELEMENTS)), n).astype(np.float32)


class Matern52(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.log_length = nn.Parameter(torch.full((dims,), math.log(0.5)))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, a, b):
        a, b = a / self.log_length.exp(), b / self.log_length.exp()
        sq = (a[:, None, :] - b[None, :, :]).square().sum(-1)
        r = (5.0 * sq + 1e-10).sqrt()
        return self.log_scale.exp() * (1 + r + r * r / 3) * torch.exp(-r)


class Surrogate(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.kernel = Matern52(dims)
        self.log_noise = nn.Parameter(torch.tensor(-4.0))
        self.mean = nn.Parameter(torch.zeros(()))

    def factor(self, x, y):
        k = self.kernel(x, x) + (self.log_noise.exp() + 1e-5) * torch.eye(len(x), device=x.device)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve((y - self.mean)[:, None], chol)
        return chol, alpha

    def nll(self, x, y):
        chol, alpha = self.factor(x, y)
        fit = 0.5 * ((y - self.mean)[:, None] * alpha).sum()
        return (fit + chol.diagonal().log().sum()) / len(x)

    def posterior(self, x, y, query):
        chol, alpha = self.factor(x, y)
        cross = self.kernel(query, x)
        mu = self.mean + (cross @ alpha)[:, 0]
        v = torch.linalg.solve_triangular(chol, cross.t(), upper=False)
        var = self.kernel.log_scale.exp() - v.square().sum(0)
        return mu, var.clamp_min(1e-6).sqrt()


def expected_improvement(mu, sd, best):
    z = (mu - best) / sd
    unit = Normal(torch.zeros_like(mu), torch.ones_like(sd))
    return sd * (z * unit.cdf(z) + unit.log_prob(z).exp())


class Campaign:
    def __init__(self, device, initial=12, batch=4, fit_steps=15, seed=0):
        self.rng = np.random.default_rng(seed)
        self.device, self.batch, self.fit_steps = device, batch, fit_steps
        start = propose_pool(self.rng, initial)
        self.x = torch.from_numpy(start).to(device)
        self.y = torch.from_numpy(furnace(start, self.rng)).to(device)
        self.model = Surrogate(len(ELEMENTS)).to(device)
        self.history = []

    def fit(self):
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.03)
        for _ in range(self.fit_steps):
            optimizer.zero_grad()
            loss = self.model.nll(self.x, self.y)
            loss.backward()
            optimizer.step()
            torch_xla.sync()
        return loss.item()

    @torch.no_grad()
    def choose(self, candidates):
        pool = torch.from_numpy(candidates).to(self.device)
        mu, sd = self.model.posterior(self.x, self.y, pool)
        score = expected_improvement(mu, sd, self.y.max())
        chosen = score.topk(self.batch).indices
        torch_xla.sync()
        return chosen.cpu().numpy()

    def measure(self, compositions):
        hardness = furnace(compositions, self.rng)
        self.x = torch.cat([self.x, torch.from_numpy(compositions).to(self.device)])
        self.y = torch.cat([self.y, torch.from_numpy(hardness).to(self.device)])
        self.history.append(float(hardness.max()))

    def run(self, rounds):
        for r in range(rounds):
            started = time.time()
            nll = self.fit()
            candidates = propose_pool(self.rng, 256)
            self.measure(candidates[self.choose(candidates)])
            print(f"round {r:2d} nll {nll:7.3f} best so far {max(self.history):.3f} ({time.time() - started:.2f} s)", flush=True)


def main():
    torch.manual_seed(0)
    campaign = Campaign(torch_xla.device())
    campaign.run(rounds=5)
    best = int(campaign.y.argmax())
    print({e: round(float(v), 3) for e, v in zip(ELEMENTS, campaign.x[best].cpu())})


if __name__ == "__main__":
    main()
