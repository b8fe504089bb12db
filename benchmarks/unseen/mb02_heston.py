"""Calibrate the Heston stochastic-volatility model to a smile of call prices.

Monte Carlo with common random numbers, pathwise derivatives by autograd, Adam on the
five (unconstrained) parameters.  Prices come from a "true" parameter set.
"""
import math
import time

import torch
import torch.nn.functional as F

S0, RATE = 100.0, 0.02
N_PATHS = 4096
STEPS_PER_QUARTER = 7
QUARTERS = 3
STRIKES = torch.tensor([80.0, 90.0, 95.0, 100.0, 105.0, 110.0, 120.0])
TRUE = dict(v0=0.04, kappa=1.8, theta=0.06, xi=0.45, rho=-0.65)


class HestonParams(torch.nn.Module):
    def __init__(self, v0, kappa, theta, xi, rho):
        super().__init__()
        inv = lambda p: math.log(math.expm1(p))
        self.raw = torch.nn.Parameter(torch.tensor([inv(v0), inv(kappa), inv(theta), inv(xi)]))
        self.raw_rho = torch.nn.Parameter(torch.tensor(math.atanh(rho)))

    def forward(self):
        v0, kappa, theta, xi = F.softplus(self.raw).unbind()
        return v0, kappa, theta, xi, torch.tanh(self.raw_rho)


def euler_step(logs, v, z1, z2, kappa, theta, xi, rho, dt):
    """Full-truncation Euler step of log-price and variance."""
    vp = torch.relu(v)
    sq = torch.sqrt(vp * dt + 1e-10)
    w2 = rho * z1 + torch.sqrt(1 - rho * rho) * z2
    logs = logs + (RATE - 0.5 * vp) * dt + sq * z1
    v = v + kappa * (theta - vp) * dt + xi * sq * w2
    return logs, v


class Simulator:
    """Holds the common random numbers and the maturities."""

    def __init__(self, n_paths, steps_per_quarter, quarters, seed=0):
        g = torch.Generator().manual_seed(seed)
        n_steps = steps_per_quarter * quarters
        half = torch.randn(n_steps, 2, n_paths // 2, generator=g)
        self.z = torch.cat([half, -half], -1)
        self.per_quarter = steps_per_quarter
        self.dt = 0.25 / steps_per_quarter
        self.maturities = [0.25 * (q + 1) for q in range(quarters)]

    def smile(self, logs, maturity):
        payoff = torch.relu(logs.exp().unsqueeze(0) - STRIKES.unsqueeze(1))
        return math.exp(-RATE * maturity) * payoff.mean(1)

    def prices(self, v0, kappa, theta, xi, rho):
        n = self.z.shape[-1]
        logs = torch.full((n,), math.log(S0))
        v = v0.expand(n)
        rows = []
        for i, (z1, z2) in enumerate(self.z):
            logs, v = euler_step(logs, v, z1, z2, kappa, theta, xi, rho, self.dt)
            if (i + 1) % self.per_quarter == 0:
                rows.append(self.smile(logs, self.maturities[len(rows)]))
        return torch.stack(rows)


def calibrate(sim, market, start, iters=200, lr=0.03):
    params = HestonParams(**start)
    opt = torch.optim.Adam(params.parameters(), lr=lr)
    price = torch.compile(sim.prices)
    history = []
    t0 = time.time()
    for it in range(iters):
        opt.zero_grad()
        err = price(*params()) - market
        loss = (err**2).mean()
        loss.backward()
        opt.step()
        history.append(loss.detach())
        if it % 50 == 0:
            print(f"  iter {it:4d}  rmse {math.sqrt(loss.item()):.4f}  {time.time() - t0:.1f}s")
    return params, torch.stack(history)


def main():
    torch.manual_seed(0)
    market_sim = Simulator(4 * N_PATHS, STEPS_PER_QUARTER, QUARTERS, seed=99)
    with torch.no_grad():
        market = market_sim.prices(*HestonParams(**TRUE)())
    print("market smile, last maturity:", [round(p, 3) for p in market[-1].tolist()])
    sim = Simulator(N_PATHS, STEPS_PER_QUARTER, QUARTERS, seed=1)
    params, history = calibrate(sim, market, dict(v0=0.09, kappa=1.0, theta=0.1, xi=0.3, rho=-0.3))
    print(f"rmse {history[0].sqrt():.4f} -> {history[-1].sqrt():.4f}")
    for (name, true), got in zip(TRUE.items(), params()):
        print(f"  {name:6s} true {true:7.3f}  fitted {got.item():7.3f}")


if __name__ == "__main__":
    main()
