"""Scheduled-sampling forecaster for hourly electricity load (synthetic substations)."""
import math
import random

import torch
from torch import nn
import torch.nn.functional as F

HISTORY, HORIZON, COVARIATES = 96, 6, 4
SERIES, LENGTH = 64, 1500
BATCH, STEPS_PER_EPOCH, EPOCHS = 64, 30, 4


def make_load(seed=3):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(LENGTH, dtype=torch.float32)
    phase = torch.rand(SERIES, 1, generator=g) * 2 * math.pi
    scale = 0.5 + torch.rand(SERIES, 1, generator=g)
    daily = torch.sin(2 * math.pi * t / 24 + phase)
    weekly = 0.4 * torch.cos(2 * math.pi * t / 168)
    noise = torch.zeros(SERIES, LENGTH)
    eps = 0.15 * torch.randn(SERIES, LENGTH, generator=g)
    for i in range(1, LENGTH):
        noise[:, i] = 0.8 * noise[:, i - 1] + eps[:, i]
    load = scale * (daily + weekly) + noise
    cov = torch.stack([torch.sin(2 * math.pi * t / 24), torch.cos(2 * math.pi * t / 24),
                       torch.sin(2 * math.pi * t / 168), torch.cos(2 * math.pi * t / 168)], -1)
    return load, cov


class WindowSampler:
    def __init__(self, load, cov, start, stop, seed):
        self.load, self.cov, self.start, self.stop = load, cov, start, stop
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, n):
        s = torch.randint(SERIES, (n, 1), generator=self.gen)
        hi = self.stop - HISTORY - HORIZON
        t0 = torch.randint(self.start, hi, (n, 1), generator=self.gen)
        idx = t0 + torch.arange(HISTORY + HORIZON)
        y, c = self.load[s, idx], self.cov[idx]
        return y[:, :HISTORY], c[:, :HISTORY], c[:, HISTORY:], y[:, HISTORY:]


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        layers, c = [], 1 + COVARIATES
        for d in (1, 2, 4, 8):
            layers += [nn.Conv1d(c, width, 3, padding=d, dilation=d), nn.GELU()]
            c = width
        self.encoder = nn.Sequential(*layers)
        self.cell = nn.GRUCell(1 + COVARIATES, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2))

    def forward(self, past, past_cov, future_cov, target=None, teacher=None):
        x = torch.cat([past.unsqueeze(-1), past_cov], -1).transpose(1, 2)
        h = self.encoder(x).mean(-1)
        last = past[:, -1]
        mus, sigmas = [], []
        for k in range(HORIZON):
            h = self.cell(torch.cat([last.unsqueeze(-1), future_cov[:, k]], -1), h)
            mu, raw = self.head(h).unbind(-1)
            mus.append(mu)
            sigmas.append(F.softplus(raw) + 1e-2)
            if teacher is not None and teacher[k]:
                last = target[:, k]
            else:
                last = mu
        return torch.stack(mus, 1), torch.stack(sigmas, 1)


def nll(mu, sigma, y):
    return (torch.log(sigma) + 0.5 * ((y - mu) / sigma) ** 2).mean()


def teacher_probability(epoch):
    """Linear decay of the ratio of true inputs given to the decoder."""
    return 1.0 - 0.7 * epoch / max(1, EPOCHS - 1)


@torch.no_grad()
def validate(net, sampler, batches=4):
    net.eval()
    err = torch.zeros(())
    for _ in range(batches):
        past, pc, fc, y = sampler.draw(BATCH)
        mu, _ = net(past, pc, fc)
        err += (mu - y).abs().mean()
    net.train()
    return (err / batches).item()


def main():
    torch.manual_seed(0)
    random.seed(0)
    load, cov = make_load()
    train = WindowSampler(load, cov, 0, 1200, 1)
    valid = WindowSampler(load, cov, 1200, LENGTH, 2)
    net = Forecaster()
    fast = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        p = teacher_probability(epoch)
        running = torch.zeros(())
        for _ in range(STEPS_PER_EPOCH):
            past, pc, fc, y = train.draw(BATCH)
            teacher = [random.random() < p for _ in range(HORIZON)]
            mu, sigma = fast(past, pc, fc, y, teacher)
            loss = nll(mu, sigma, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            running += loss.detach()
        mae = validate(fast, valid)
        print(f"epoch {epoch}  p(teacher)={p:.2f}  nll {running.item() / STEPS_PER_EPOCH:.3f}  val MAE {mae:.3f}")


if __name__ == "__main__":
    main()
