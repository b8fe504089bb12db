"""Learn the unknown reaction rate of a jacketed stirred-tank reactor (CSTR).

Hybrid neural ODE: mass and energy balances are known, the kinetics are a small
network. Fitted by back-propagating through a fixed-step RK4 integration.
"""
import time

import torch
import torch.nn as nn

Q_V, RHO_CP, UA_V, DH = 1.0, 1.0, 0.6, 1.6     # scaled plant constants
C_FEED, T_FEED = 1.0, 0.3
DT, SUBSTEPS = 0.05, 2


def true_rate(conc, temp):
    return 6.0 * conc * torch.exp(-2.2 / (0.4 + temp.clamp_min(0.0)))


class Kinetics(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                 nn.Linear(width, 1), nn.Softplus())

    def forward(self, conc, temp):
        return self.net(torch.stack([conc, temp], -1)).squeeze(-1)


class Plant:
    """Balances of one tank; `rate` may be the truth or a network."""

    def __init__(self, rate):
        self.rate = rate

    def balances(self, state, jacket):
        conc, temp = state.unbind(-1)
        r = self.rate(conc, temp)
        d_conc = Q_V * (C_FEED - conc) - r
        d_temp = Q_V * (T_FEED - temp) + DH * r / RHO_CP - UA_V * (temp - jacket)
        return torch.stack([d_conc, d_temp], -1)

    def advance(self, state, jacket):
        h = DT / SUBSTEPS
        for _ in range(SUBSTEPS):
            k1 = self.balances(state, jacket)
            k2 = self.balances(state + 0.5 * h * k1, jacket)
            k3 = self.balances(state + 0.5 * h * k2, jacket)
            k4 = self.balances(state + h * k3, jacket)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state

    def simulate(self, state, jackets):
        path = []
        for jacket in jackets.unbind(1):
            state = self.advance(state, jacket)
            path.append(state)
        return torch.stack(path, 1)


def excite(n, steps, seed):
    """Random staircase of the jacket temperature, and a start state."""
    g = torch.Generator().manual_seed(seed)
    levels = 0.2 + 0.5 * torch.rand(n, steps // 5 + 1, generator=g)
    jackets = levels.repeat_interleave(5, 1)[:, :steps]
    start = torch.rand(n, 2, generator=g) * torch.tensor([0.8, 0.6]) + torch.tensor([0.1, 0.2])
    return start, jackets


def main():
    torch.manual_seed(0)
    horizon, runs = 18, 48
    start, jackets = excite(runs, horizon, 1)
    with torch.no_grad():
        measured = Plant(true_rate).simulate(start, jackets)
        measured += 0.01 * torch.randn_like(measured)

    kinetics = Kinetics()
    plant = Plant(kinetics)
    rollout = torch.compile(plant.simulate, backend="aot_eager")
    opt = torch.optim.Adam(kinetics.parameters(), lr=5e-3)
    weight = torch.tensor([1.0, 0.5])

    began = time.time()
    history = []
    for it in range(60):
        span = min(horizon, 6 * (1 + it // 20))
        opt.zero_grad()
        miss = (rollout(start, jackets[:, :span]) - measured[:, :span]) * weight
        loss = miss.square().mean()
        loss.backward()
        opt.step()
        history.append(loss.detach())
        if it % 20 == 19:
            print(f"it {it + 1} span {span} loss {torch.stack(history[-20:]).mean().item():.5f} "
                  f"({time.time() - began:.0f}s)", flush=True)

    with torch.no_grad():
        probe = torch.rand(400, 2)
        err = (kinetics(probe[:, 0], probe[:, 1]) - true_rate(probe[:, 0], probe[:, 1])).abs().mean()
    print(f"mean error of the learnt rate: {err.item():.4f}")


if __name__ == "__main__":
    main()
