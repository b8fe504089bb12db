"""Bootstrap variance of raked (iterative proportional fitting) survey estimates.

A stratified household sample is re-weighted to known margins (region, age group, tenure), and
the variance of the poverty rate of every stratum is estimated with Rao-Wu rescaling bootstrap.
"""
import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch_xla

N_REGION, N_AGE, N_TENURE = 16, 8, 3


@dataclass
class Survey:
    region: torch.Tensor
    age: torch.Tensor
    tenure: torch.Tensor
    income: torch.Tensor
    weight: torch.Tensor
    stratum: torch.Tensor


def draw_sample(n, n_strata, rng):
    stratum = np.sort(rng.choice(n_strata, size=n, p=rng.dirichlet(np.full(n_strata, 20.0))))
    region = stratum % N_REGION
    age = rng.integers(0, N_AGE, n)
    tenure = np.minimum(rng.poisson(0.4 + 0.08 * age), N_TENURE - 1)
    income = np.exp(rng.normal(9.8 + 0.06 * age + 0.15 * tenure + 0.01 * region, 0.6))
    weight = rng.uniform(80, 220, n)
    to = lambda a, t: torch.as_tensor(a, dtype=t)
    return Survey(to(region, torch.long), to(age, torch.long), to(tenure, torch.long),
                  to(income, torch.float32), to(weight, torch.float32), to(stratum, torch.long))


def to_device(s, device):
    return Survey(*(getattr(s, f).to(device) for f in s.__dataclass_fields__))


def margins(survey, factors):
    """Population totals: the design weights' totals, disturbed as a census would disagree."""
    targets = []
    for name, k in factors:
        code = getattr(survey, name)
        t = torch.zeros(k).index_add_(0, code, survey.weight)
        t = t * (1 + 0.1 * torch.randn(k))
        targets.append(t * survey.weight.sum() / t.sum())
    return targets


class Raker:
    def __init__(self, survey, factors, targets, tol=1e-4, max_iter=60):
        self.codes = [getattr(survey, n) for n, _ in factors]
        self.targets = targets
        self.tol, self.max_iter = tol, max_iter

    def sweep(self, w):
        worst = torch.zeros((), device=w.device)
        for code, target in zip(self.codes, self.targets):
            total = torch.zeros_like(target).index_add_(0, code, w)
            ratio = target / total.clamp_min(1e-6)
            worst = torch.maximum(worst, (ratio - 1).abs().max())
            w = w * ratio[code]
        return w, worst

    def __call__(self, w):
        for it in range(self.max_iter):
            w, worst = self.sweep(w)
            if worst < self.tol:
                break
        return w


def stratum_rates(survey, w, line, n_strata):
    """Weighted poverty rate within each stratum."""
    rates = []
    for h in range(n_strata):
        inside = survey.stratum == h
        wh, yh = w[inside], survey.income[inside]
        rates.append((wh * (yh < line)).sum() / wh.sum())
    return torch.stack(rates)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=24000)
    ap.add_argument("--strata", type=int, default=40)
    ap.add_argument("--replicates", type=int, default=25)
    args = ap.parse_args()
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    device = torch_xla.device()

    host = draw_sample(args.n, args.strata, rng)
    factors = [("region", N_REGION), ("age", N_AGE), ("tenure", N_TENURE)]
    targets = [t.to(device) for t in margins(host, factors)]
    survey = to_device(host, device)
    raker = Raker(survey, factors, targets)

    w0 = raker(survey.weight)
    line = 0.6 * float(host.income.median())
    point = stratum_rates(survey, w0, line, args.strata).cpu()
    print(f"poverty line {line:.0f}, mean stratum rate {point.mean():.4f}")

    size = torch.bincount(host.stratum, minlength=args.strata).float()
    estimates, t0 = [], time.time()
    for b in range(args.replicates):
        mult = torch.zeros(args.n)
        for h in range(args.strata):
            idx = (host.stratum == h).nonzero().squeeze(1)
            drawn = idx[torch.randint(len(idx), (len(idx) - 1,))]
            mult.index_add_(0, drawn, torch.full((len(drawn),), float(size[h] / (size[h] - 1))))
        w = raker(survey.weight * mult.to(device))
        estimates.append(stratum_rates(survey, w, line, args.strata).cpu())
        if (b + 1) % 5 == 0:
            print(f"replicate {b + 1}: {time.time() - t0:.1f} s")
    se = torch.stack(estimates).std(0)
    cv = se / point
    print(f"standard error: mean {se.mean():.4f}, worst {se.max():.4f}; strata with CV over 15 %: {int((cv > .15).sum())}")


if __name__ == "__main__":
    main()
