"""Distil an ensemble of wind-power forecasters into one small student, with quantile outputs."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

HISTORY, AHEAD, CHANNELS = 72, 12, 4
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def wind_farm(hours, rng):
    """AR(2) wind speed, direction, temperature -> power by a cubic curve that saturates."""
    w = np.zeros(hours)
    e = rng.normal(0, 0.5, hours)
    for t in range(2, hours):
        w[t] = 1.5 * w[t - 1] - 0.53 * w[t - 2] + e[t]
    hour = np.arange(hours)
    speed = np.maximum(8 + w + np.sin(2 * np.pi * hour / 24), 0)
    power = np.clip((speed / 13) ** 3, 0, 1) + rng.normal(0, 0.02, hours)
    day = 2 * np.pi * hour / 24
    return np.stack([power, speed / 10, np.sin(day), np.cos(day)], 1).astype(np.float32)


def windows(series, start, stop, stride):
    at = np.arange(start, stop - HISTORY - AHEAD, stride)
    x = np.stack([series[a:a + HISTORY] for a in at]).transpose(0, 2, 1)
    y = np.stack([series[a + HISTORY:a + HISTORY + AHEAD, 0] for a in at])
    return TensorDataset(torch.from_numpy(x.copy()), torch.from_numpy(y))


class Forecaster(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Conv1d(CHANNELS, width, 3, padding=2)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, 3, dilation=2 ** k, padding=2 ** (k + 1)) for k in range(1, depth))
        self.out = nn.Linear(width, AHEAD * len(LEVELS))

    def forward(self, x):
        h = F.relu(self.inp(x)[..., :-2])
        for conv in self.layers:
            h = h + F.relu(conv(h)[..., : h.shape[-1]])
        q = self.out(h[..., -1]).view(-1, AHEAD, len(LEVELS))
        return torch.cat([q[..., :1], q[..., :1] + F.softplus(q[..., 1:]).cumsum(-1)], -1)


class Pinball(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("levels", torch.tensor(LEVELS))

    def forward(self, q, y):
        d = y.unsqueeze(-1) - q
        return torch.maximum(self.levels * d, (self.levels - 1) * d).mean()


def fit(model, loader, objective, lr, epochs, device, name, patience=2):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(loader))
    best, waited = float("inf"), 0
    for epoch in range(epochs):
        t, total = time.time(), torch.zeros((), device=device)
        for x, y in loader:
            opt.zero_grad()
            loss = objective(model, x, y)
            loss.backward()
            xm.optimizer_step(opt)
            scheduler.step()
            total += loss.detach()
        mean = total.item() / len(loader)
        print(f"  {name} epoch {epoch}: {mean:.5f}, {time.time() - t:.1f} s")
        if mean < best - 1e-4:
            best, waited = mean, 0
        else:
            waited += 1
            if waited >= patience:
                break
    return model


@torch.no_grad()
def evaluate(model, loader, pinball, device):
    loss = torch.zeros((), device=device)
    inside = torch.zeros((), device=device)
    for x, y in loader:
        q = model(x)
        loss += pinball(q, y)
        inside += ((y >= q[..., 0]) & (y <= q[..., -1])).float().mean()
    return (loss / len(loader)).item(), (inside / len(loader)).item()


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    series = wind_farm(9000, np.random.default_rng(0))
    train = DataLoader(windows(series, 0, 7000, 2), batch_size=64, shuffle=True, drop_last=True)
    test = DataLoader(windows(series, 7000, 9000, 4), batch_size=64)
    train, test = pl.MpDeviceLoader(train, device), pl.MpDeviceLoader(test, device)
    pinball = Pinball().to(device)

    supervised = lambda m, x, y: pinball(m(x), y)
    teachers = [fit(Forecaster(32, 4).to(device), train, supervised, 2e-3, 3, device, f"teacher {k}") for k in range(2)]
    for teacher in teachers:
        teacher.requires_grad_(False).eval()

    def distill(m, x, y):
        noisy = x + 0.02 * torch.randn_like(x)
        with torch.no_grad():
            soft = torch.stack([t(noisy) for t in teachers]).mean(0)
        q = m(noisy)
        return 0.3 * pinball(q, y) + 0.7 * F.smooth_l1_loss(q, soft, beta=0.1)

    student = fit(Forecaster(16, 3).to(device), train, distill, 4e-3, 5, device, "student")
    for name, model in [("teacher", teachers[0]), ("student", student)]:
        loss, cover = evaluate(model, test, pinball, device)
        print(f"{name}: pinball {loss:.4f}, 80 % interval covers {cover:.3f}")


if __name__ == "__main__":
    main()
