"""Recover the tension map of a drumhead from the vibration measured at a few microphones.

The wave equation is integrated with a leapfrog scheme through `scan`; gradients reach the tension map.
"""
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.experimental.scan import scan

N = 20
DT = 0.3
STEPS_REFERENCE = 40
STEPS_FIT = 20


def laplacian(u):
    p = torch.nn.functional.pad(u[None, None], (1, 1, 1, 1))[0, 0]
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u


def membrane(device):
    xs = torch.linspace(-1, 1, N)
    yy, xx = torch.meshgrid(xs, xs, indexing="ij")
    inside = (xx ** 2 + yy ** 2 < 0.95).float()
    return xx.to(device), yy.to(device), inside.to(device)


def strike(xx, yy, where):
    return torch.exp(-((xx - where[0]) ** 2 + (yy - where[1]) ** 2) / 0.02)


class Drum(torch.nn.Module):
    def __init__(self, inside, damping=0.02):
        super().__init__()
        self.log_tension = torch.nn.Parameter(torch.zeros(N, N))
        self.register_buffer("inside", inside)
        self.damping = damping

    def tension(self):
        return self.log_tension.exp() * self.inside

    def forward(self, u0, steps, mics):
        tension = self.tension()
        inside, damping = self.inside, self.damping

        def advance(carry, drive):
            u, v, c = carry
            v = (v + DT * (c * laplacian(u) + drive)) * (1 - damping)
            u = (u + DT * v) * inside
            return (u, v, c), u

        drive = torch.zeros(steps, 1, 1, device=u0.device)
        _, frames = scan(advance, (u0 * inside, torch.zeros_like(u0), tension), drive)
        return frames[:, mics[0], mics[1]]


@torch.no_grad()
def reference(xx, yy, inside, mics, strikes):
    """Measured signals: a true tension map with a tight and a slack spot, integrated at half the time step."""
    tension = (1 + 0.5 * torch.exp(-((xx - 0.3) ** 2 + yy ** 2) / 0.1) - 0.3 * torch.exp(-((xx + 0.4) ** 2 + yy ** 2) / 0.1))
    tension = tension * inside
    signals = []
    for where in strikes:
        u, v = strike(xx, yy, where) * inside, torch.zeros_like(xx)
        trace = []
        for k in range(STEPS_REFERENCE):
            v = (v + DT / 2 * tension * laplacian(u)) * (1 - 0.01)
            u = (u + DT / 2 * v) * inside
            if k % 2 == 1:
                trace.append(u[mics[0], mics[1]])
        signals.append(torch.stack(trace))
    xm.mark_step()
    return signals


def smoothness(t):
    return ((t[1:] - t[:-1]) ** 2).mean() + ((t[:, 1:] - t[:, :-1]) ** 2).mean()


def main():
    torch.manual_seed(1)
    device = torch.device("xla")
    xx, yy, inside = membrane(device)
    mics = (torch.tensor([5, 10, 10, 15, 8]).to(device), torch.tensor([10, 5, 15, 10, 8]).to(device))
    strikes = [(0.0, 0.0), (0.4, 0.1)]
    clock = time.time()
    signals = reference(xx, yy, inside, mics, strikes)
    shapes = [strike(xx, yy, w) for w in strikes]
    drum = Drum(inside).to(device)
    opt = torch.optim.Adam(drum.parameters(), lr=0.03)
    xm.mark_step()
    print(f"reference ready after {time.time() - clock:.1f}s")
    for it in range(16):
        loss = 1e-3 * smoothness(drum.log_tension)
        for u0, signal in zip(shapes, signals):
            loss = loss + ((drum(u0, STEPS_FIT, mics) - signal) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        xm.mark_step()
        if it % 8 == 7:
            t = drum.tension().detach().cpu()
            print(f"{it:3d} misfit {loss.item():.5f} tension {t.min():.2f} to {t.max():.2f}, {time.time() - clock:.1f}s")


if __name__ == "__main__":
    main()
