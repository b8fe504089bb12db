"""Neural ODE of drug concentration after repeated doses, with an adaptive Heun solver."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

logger = logging.getLogger("dosing")
HOURS = (1.0, 2.0, 4.0, 8.0)


def patients(n, seed):
    """Plasma levels at HOURS from a two-compartment model with individual clearances."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(70, 12, n).clip(40, 120)
    dose = rng.choice([50.0, 100.0, 200.0], n)
    ka, ke = rng.lognormal(0.2, 0.2, n), rng.lognormal(-1.6, 0.25, n) * (70 / weight) ** 0.25
    t = np.array(HOURS)[:, None]
    level = dose / weight * ka / (ka - ke) * (np.exp(-ke * t) - np.exp(-ka * t))
    covariates = np.stack([weight / 70, dose / 100], 1)
    return torch.from_numpy(covariates.astype(np.float32)), torch.from_numpy(level.T.astype(np.float32))


class Kinetics(nn.Module):
    def __init__(self, state=4, covariates=2, hidden=32):
        super().__init__()
        self.start = nn.Linear(covariates, state)
        self.net = nn.Sequential(nn.Linear(state + covariates, hidden), nn.Tanh(), nn.Linear(hidden, state))
        self.decay = nn.Parameter(torch.full((state,), -1.0))
        self.readout = nn.Linear(state, 1)

    def derivative(self, y, c):
        return self.net(torch.cat([y, c], -1)) - self.decay.exp() * y


class AdaptiveHeun:
    def __init__(self, rtol=0.02, first_step=0.25, smallest=1 / 64, largest=1.0):
        self.rtol, self.first_step = rtol, first_step
        self.smallest, self.largest = smallest, largest
        self.evaluations = 0

    def attempt(self, f, y, h):
        k1 = f(y)
        euler = y + h * k1
        heun = y + 0.5 * h * (k1 + f(euler))
        self.evaluations += 2
        with torch.no_grad():
            error = ((heun - euler).abs() / (self.rtol * (1 + heun.abs()))).amax()
        return heun, error

    def integrate(self, f, y, t, until, h):
        while t < until:
            h = min(h, until - t)
            proposal, error = self.attempt(f, y, h)
            if error < 1.0 or h <= self.smallest:
                y, t = proposal, t + h
                h = min(2 * h, self.largest)
            else:
                h = h / 2
        return y, t, h

    def trajectory(self, model, covariates, times):
        y, t, h = torch.tanh(model.start(covariates)), 0.0, self.first_step
        levels = []
        for stop in times:
            y, t, h = self.integrate(lambda s: model.derivative(s, covariates), y, t, stop, h)
            levels.append(model.readout(y)[:, 0])
        return torch.stack(levels, 1)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def __call__(self, value):
        self.bad = 0 if value < self.best else self.bad + 1
        self.best = min(self.best, value)
        return self.bad > self.patience


def batches(covariates, levels, size, rng):
    order = torch.from_numpy(rng.permutation(len(covariates)))
    for index in order[: len(order) // size * size].view(-1, size):
        yield covariates[index], levels[index]


def run_epoch(model, solver, data, size, rng, device, optimizer):
    total, n = torch.zeros((), device=device), 0
    for covariates, levels in batches(*data, size, rng):
        covariates, levels = covariates.to(device), levels.to(device)
        predicted = solver.trajectory(model, covariates, HOURS)
        loss = (torch.log1p(predicted.clamp_min(-0.5)) - torch.log1p(levels)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        n += 1
        torch_xla.sync()
    return (total / n).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=192)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    device = xm.xla_device()
    model, solver, stop = Kinetics().to(device), AdaptiveHeun(), EarlyStopping(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = patients(args.patients, 0)
    for epoch in range(args.epochs):
        started, before = time.time(), solver.evaluations
        loss = run_epoch(model, solver, data, args.batch, rng, device, optimizer)
        logger.info("epoch %d loss %.4f, %d evaluations, %.1f s", epoch, loss, solver.evaluations - before, time.time() - started)
        if stop(loss):
            break


if __name__ == "__main__":
    main()
