"""Hamiltonian Monte Carlo for a hierarchical Poisson model of bike-share departures (stations within districts)."""
import argparse
import math
import random
import time

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm


def synthesize(stations=40, districts=5, days=60, seed=0):
    g = np.random.default_rng(seed)
    district = g.integers(0, districts, stations)
    base = g.normal(1.5, 0.5, districts)[district] + g.normal(0, 0.3, stations)
    temp = np.sin(np.linspace(0, 3, days)) + 0.2 * g.normal(size=days)
    rain = (g.random(days) < 0.3).astype(float)
    rate = np.exp(base[:, None] + 0.4 * temp - 0.6 * rain)
    return district, np.stack([temp, rain]), g.poisson(rate)


class DepartureModel:
    """theta = [beta(2), mu, log_tau, log_sigma, district effects, station effects], non-centred."""

    def __init__(self, device):
        district, cov, counts = synthesize()
        self.n_d, self.n_s = int(district.max()) + 1, len(district)
        self.district = torch.from_numpy(district).to(device)
        self.cov = torch.from_numpy(cov).float().to(device)
        self.counts = torch.from_numpy(counts).float().to(device)
        self.dim = 5 + self.n_d + self.n_s

    def unpack(self, theta):
        beta, mu, log_tau, log_sigma = theta[:2], theta[2], theta[3], theta[4]
        d = theta[5:5 + self.n_d] * log_tau.exp()
        s = theta[5 + self.n_d:] * log_sigma.exp()
        return beta, mu + d[self.district] + s

    def log_prob(self, theta):
        beta, intercept = self.unpack(theta)
        eta = intercept[:, None] + (beta[:, None] * self.cov).sum(0)[None]
        likelihood = (self.counts * eta - eta.exp()).sum()
        prior = -0.5 * (theta ** 2).sum()
        return likelihood + prior

    def grad(self, theta):
        theta = theta.detach().requires_grad_()
        lp = self.log_prob(theta)
        return lp.detach(), torch.autograd.grad(lp, theta)[0]


class DualAveraging:
    """Step size adaptation (Hoffman and Gelman), on the host: it has an accept probability a draw."""

    def __init__(self, eps, target=0.8):
        self.mu, self.target = math.log(10 * eps), target
        self.h = self.log_bar = 0.0
        self.t, self.eps = 0, eps

    def update(self, accept):
        self.t += 1
        w = 1 / (self.t + 10)
        self.h = (1 - w) * self.h + w * (self.target - accept)
        log_eps = self.mu - math.sqrt(self.t) / 0.05 * self.h
        eta = self.t ** -0.75
        self.log_bar = eta * log_eps + (1 - eta) * self.log_bar
        self.eps = math.exp(log_eps)

    def freeze(self):
        self.eps = math.exp(self.log_bar)


class HMC:
    def __init__(self, model, device, eps=0.005, trajectory=(3, 6)):
        self.model, self.device, self.trajectory = model, device, trajectory
        self.adapt = DualAveraging(eps)
        self.theta = torch.zeros(model.dim, device=device)
        self.lp, self.g = model.grad(self.theta)
        xm.mark_step()

    def leapfrog(self, q, p, g, steps):
        eps = self.adapt.eps
        p = p + 0.5 * eps * g
        for i in range(steps):
            q = q + eps * p
            lp, g = self.model.grad(q)
            if i < steps - 1:
                p = p + eps * g
        return q, p + 0.5 * eps * g, lp, g

    def draw(self, tuning):
        steps = random.randint(*self.trajectory)
        p0 = torch.randn_like(self.theta)
        q, p, lp, g = self.leapfrog(self.theta, p0, self.g, steps)
        log_ratio = (lp - 0.5 * (p ** 2).sum()) - (self.lp - 0.5 * (p0 ** 2).sum())
        accept = torch.exp(log_ratio.clamp(max=0.0))
        accept = torch.where(torch.isfinite(accept), accept, torch.zeros_like(accept))
        take = torch.rand((), device=self.device) < accept
        self.theta = torch.where(take, q, self.theta)
        self.lp = torch.where(take, lp, self.lp)
        self.g = torch.where(take, g, self.g)
        xm.mark_step()
        if tuning:
            self.adapt.update(accept.item())
        return self.theta, accept


def effective_size(chain):
    x = chain - chain.mean(0)
    var = (x ** 2).mean(0)
    rho = torch.stack([(x[k:] * x[:-k]).mean(0) / var for k in range(1, 8)])
    return len(chain) / (1 + 2 * rho.clamp(min=0).sum(0))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--warmup", type=int, default=40)
    ap.add_argument("--draws", type=int, default=80)
    args = ap.parse_args()
    random.seed(4)
    torch.manual_seed(4)
    device = torch.device("xla")
    sampler = HMC(DepartureModel(device), device)
    start = time.time()
    for _ in range(args.warmup):
        sampler.draw(tuning=True)
    sampler.adapt.freeze()
    print(f"warmup {time.time() - start:.1f}s, eps {sampler.adapt.eps:.4f}")
    chain, rates = [], []
    for _ in range(args.draws):
        theta, accept = sampler.draw(tuning=False)
        chain.append(theta)
        rates.append(accept)
    draws = torch.stack(chain).cpu()
    print(f"accept {torch.stack(rates).mean().item():.2f}, min ess {effective_size(draws).min().item():.0f}")
    print(f"beta {draws[:, :2].mean(0).tolist()}, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
