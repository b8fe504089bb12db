"""Recovers a plate's conductivity map from temperature snapshots, on an XLA device.

An explicit finite-difference heat solver is differentiated through; the unknown map is
a coarse grid, interpolated to the mesh. Experiments differ in where the heater stands
and in how long it was on.
"""
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

GRID, COARSE = 24, 6
DT, SHORTEST, LONGEST = 0.2, 4, 8
N_EXPERIMENTS, SWEEPS = 12, 15


def heater(cx, cy):
    """A Gaussian spot on the plate."""
    axis = torch.arange(GRID, dtype=torch.float32)
    return torch.exp(-((axis[:, None] - cy) ** 2 + (axis[None, :] - cx) ** 2) / 8.0)


def upsample(coarse):
    field = F.softplus(coarse)
    rows = torch.repeat_interleave(field, GRID // COARSE, dim=0)
    return torch.repeat_interleave(rows, GRID // COARSE, dim=1)


def heat_step(temp, conductivity, source):
    """One explicit step with insulated walls."""
    flux_x = 0.5 * (conductivity[:, 1:] + conductivity[:, :-1]) * (temp[:, 1:] - temp[:, :-1])
    flux_y = 0.5 * (conductivity[1:, :] + conductivity[:-1, :]) * (temp[1:, :] - temp[:-1, :])
    div_x = F.pad(flux_x, (0, 1)) - F.pad(flux_x, (1, 0))
    div_y = F.pad(flux_y, (0, 0, 0, 1)) - F.pad(flux_y, (0, 0, 1, 0))
    return temp + DT * (div_x + div_y + source)


def simulate(conductivity, source, n_steps):
    temp = torch.zeros_like(source)
    for _ in range(n_steps):
        temp = heat_step(temp, conductivity, source)
    return temp


class Campaign:
    """The measured experiments: heater map, duration and final temperature of each."""

    def __init__(self, truth, device, seed=0):
        rng = np.random.default_rng(seed)
        self.runs = []
        for _ in range(N_EXPERIMENTS):
            source = heater(*rng.uniform(3, GRID - 4, 2))
            n_steps = int(rng.integers(SHORTEST, LONGEST + 1))
            final = simulate(upsample(truth), source, n_steps)
            final = final + 0.002 * torch.randn_like(final)
            self.runs.append((source.to(device), n_steps, final.to(device)))

    def __iter__(self):
        return iter(self.runs)


class EarlyStopping:
    def __init__(self, patience=3):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    rows, cols = torch.meshgrid(torch.linspace(0, 3, COARSE), torch.linspace(0, 3, COARSE), indexing="ij")
    truth = 0.3 + torch.sin(rows) * torch.cos(cols)
    campaign = Campaign(truth, device)
    print(f"{N_EXPERIMENTS} experiments of {sorted({n for _, n, _ in campaign})} steps")

    guess = torch.zeros(COARSE, COARSE, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([guess], lr=1000.0, momentum=0.5)
    stopping = EarlyStopping()
    reference = upsample(truth).to(device)

    for sweep in range(SWEEPS):
        started = time.time()
        misfits = []
        for source, n_steps, final in campaign:
            optimizer.zero_grad()
            predicted = simulate(upsample(guess), source, n_steps)
            misfit = F.mse_loss(predicted, final)
            smooth = (guess[1:] - guess[:-1]).square().mean() + (guess[:, 1:] - guess[:, :-1]).square().mean()
            (misfit + 1e-5 * smooth).backward()
            optimizer.step()
            xm.mark_step()
            misfits.append(misfit.detach())
        misfit = torch.stack(misfits).mean().item()
        error = (upsample(guess.detach()) - reference).abs().mean().item()
        print(f"sweep {sweep}: misfit {misfit:.3e}, mean |k - k_true| {error:.4f}, {time.time() - started:.1f} s")
        if stopping(misfit):
            break

    recovered = upsample(guess.detach()).cpu()
    corr = np.corrcoef(recovered.numpy().ravel(), upsample(truth).numpy().ravel())[0, 1]
    print(f"correlation of the recovered with the true map: {corr:.3f}")


if __name__ == "__main__":
    main()
