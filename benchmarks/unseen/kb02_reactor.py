"""Surrogate-based calibration of a stirred-tank reactor (van de Vusse kinetics).

We fit rate constants and an activation term to measured concentration traces by
differentiating through an explicit integrator.  Several feeds are calibrated together.
"""
import time

import torch
import torch.nn as nn

torch.manual_seed(3)
torch.set_num_threads(1)

N_FEEDS = 256
DT = 0.02
SUBSTEPS = 60


class Kinetics(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_k = nn.Parameter(torch.log(torch.tensor([0.6, 1.5, 0.2])))
        self.correction = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 2))
        nn.init.zeros_(self.correction[-1].weight)
        nn.init.zeros_(self.correction[-1].bias)

    def forward(self, state, feed, dilution):
        ca, cb = state.unbind(-1)
        k1, k2, k3 = self.log_k.exp().unbind()
        d_a = -k1 * ca - k3 * ca ** 2 + dilution * (feed - ca)
        d_b = k1 * ca - k2 * cb - dilution * cb
        extra = self.correction(torch.stack([ca, cb, dilution], -1))
        return torch.stack([d_a, d_b], -1) + 0.1 * extra


class Monitor:
    """Keeps the worst mass-balance residual, and stops runaway trajectories early."""

    def __init__(self, limit):
        self.limit = limit
        self.worst = 0.0

    def check(self, state):
        peak = float(state.abs().max())
        self.worst = max(self.worst, peak)
        return peak < self.limit


class Integrator(nn.Module):
    def __init__(self, rhs, monitor):
        super().__init__()
        self.rhs = rhs
        self.monitor = monitor
        self.step_fn = torch.compile(self.rk2, backend="aot_eager")

    def rk2(self, state, feed, dilution):
        k1 = self.rhs(state, feed, dilution)
        mid = state + 0.5 * DT * k1
        if not self.monitor.check(mid):
            mid = mid.clamp(-self.monitor.limit, self.monitor.limit)
        k2 = self.rhs(mid, feed, dilution)
        return state + DT * k2

    def forward(self, state, feed, dilution):
        trace = []
        for _ in range(SUBSTEPS):
            state = self.step_fn(state, feed, dilution)
            trace.append(state)
        return torch.stack(trace, 1)


def measured(feed, dilution):
    """Ground truth with other constants and a fine step."""
    k1, k2, k3 = 0.83, 1.25, 0.17
    ca = torch.zeros_like(feed)
    cb = torch.zeros_like(feed)
    out = []
    for _ in range(SUBSTEPS):
        for _ in range(5):
            da = -k1 * ca - k3 * ca ** 2 + dilution * (feed - ca)
            db = k1 * ca - k2 * cb - dilution * cb
            ca, cb = ca + DT / 5 * da, cb + DT / 5 * db
        out.append(torch.stack([ca, cb], -1))
    trace = torch.stack(out, 1)
    return trace + 0.005 * torch.randn_like(trace)


def main():
    feed = 4.0 + 2.0 * torch.rand(N_FEEDS)
    dilution = 0.3 + 0.9 * torch.rand(N_FEEDS)
    target = measured(feed, dilution)

    kinetics = Kinetics()
    monitor = Monitor(limit=50.0)
    solver = Integrator(kinetics, monitor)
    opt = torch.optim.Adam(kinetics.parameters(), lr=0.02)
    start = torch.zeros(N_FEEDS, 2)

    t0 = time.time()
    for it in range(250):
        opt.zero_grad()
        loss = (solver(start, feed, dilution) - target).square().mean()
        loss.backward()
        opt.step()
        if it % 50 == 0:
            k = kinetics.log_k.detach().exp().tolist()
            print(f"it {it:4d} mse {loss.item():.6f} k {[round(v, 3) for v in k]} "
                  f"peak {monitor.worst:.2f} {time.time() - t0:.1f}s")
    print("final constants", kinetics.log_k.detach().exp())


if __name__ == "__main__":
    main()
