"""Remaining life of wind-turbine bearings: temporal convolutions with quantile outputs."""
import time
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

SENSORS, WINDOW, QUANTILES = 6, 48, (0.1, 0.5, 0.9)


class Bearings(Dataset):
    """Windows of vibration features; all are cut and scaled once, when the data set is made."""

    def __init__(self, turbines, windows, seed):
        rng = np.random.default_rng(seed)
        life = rng.gamma(4.0, 0.25, (turbines, 1))
        age = rng.random((turbines, windows)) * life
        wear = np.exp(3 * age / life)[..., None, None] / 20
        t = np.arange(WINDOW)
        tone = np.sin(2 * np.pi * t / rng.uniform(4, 16, (turbines, 1, SENSORS, 1)))
        x = wear * tone + 0.3 * rng.normal(size=(turbines, windows, SENSORS, WINDOW))
        self.x = torch.from_numpy(x.reshape(-1, SENSORS, WINDOW).astype(np.float32))
        self.remaining = torch.from_numpy((life - age).reshape(-1).astype(np.float32))
        self.x = (self.x - self.x.mean((0, 2), keepdim=True)) / self.x.std((0, 2), keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.remaining[i]


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation, dropout):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.norm, self.drop = nn.GroupNorm(1, width), nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(F.glu(self.conv(self.norm(x)), 1))


class LifeNet(nn.Module):
    def __init__(self, width=24, dropout=0.1):
        super().__init__()
        self.stem = nn.Conv1d(SENSORS, width, 5, padding=2)
        self.blocks = nn.Sequential(*[DilatedBlock(width, 2 ** i, dropout) for i in range(4)])
        self.head = nn.Linear(width, len(QUANTILES))

    def forward(self, x):
        pooled = self.blocks(self.stem(x)).amax(-1)
        first, *steps = self.head(pooled).unbind(-1)
        levels = [first]
        for step in steps:
            levels.append(levels[-1] + F.softplus(step))
        return torch.stack(levels, -1)


def pinball(predicted, observed, quantiles):
    error = observed[:, None] - predicted
    return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()


def report(step, loss, started):
    xm.master_print(f"step {step} loss {loss.item():.4f} {step / (time.time() - started):.1f} steps/s")


class Averaged:
    def __init__(self, model, decay=0.98):
        self.decay, self.model = decay, model
        self.values = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self):
        for value, p in zip(self.values, self.model.parameters()):
            value.lerp_(p, 1 - self.decay)


@torch.no_grad()
def coverage(model, loader, device):
    """Share of bearings whose life lies between the outer quantiles."""
    model.eval()
    inside, n = torch.zeros((), device=device), 0
    for x, remaining in pl.MpDeviceLoader(loader, device):
        predicted = model(x)
        inside += ((remaining >= predicted[:, 0]) & (remaining <= predicted[:, -1])).sum()
        n += len(remaining)
    model.train()
    return inside.item() / n


def main(epochs=6, log_every=50):
    torch.manual_seed(1)
    device = xm.xla_device()
    make = partial(DataLoader, num_workers=0, drop_last=True)
    train_loader = make(Bearings(60, 40, 0), batch_size=24, shuffle=True)
    test_loader = make(Bearings(16, 40, 1), batch_size=80)
    model = LifeNet().to(device)
    averaged = Averaged(model)
    quantiles = torch.tensor(QUANTILES, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs * len(train_loader))
    step, started = 0, time.time()
    for epoch in range(epochs):
        for x, remaining in pl.MpDeviceLoader(train_loader, device):
            loss = pinball(model(x), remaining, quantiles)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            xm.optimizer_step(optimizer)
            schedule.step()
            averaged.update()
            step += 1
            if step % log_every == 0:
                xm.add_step_closure(report, args=(step, loss.detach(), started))
        if epoch % 2:
            xm.master_print(f"epoch {epoch} coverage {coverage(model, test_loader, device):.3f}")
    xm.save({"model": model.state_dict(), "averaged": averaged.values}, "/tmp/turbines.pt")


if __name__ == "__main__":
    main()
