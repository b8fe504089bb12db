"""River-stage forecasting: a GRU-cell seq2seq trained with scheduled sampling.

The encoder reads the last hours of rainfall and stage, the decoder forecasts the
next hours. During training the decoder sees either the observed stage or its
own last forecast (Bengio et al., 2015).
"""
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

HISTORY = 12
HORIZON = 6
BATCH = 128
EPOCHS = 2
STEPS = 10

random.seed(11)
np.random.seed(11)
torch.manual_seed(11)


def synthetic_gauge(hours=9000):
    """Rain bursts routed through a two-reservoir cascade."""
    rain = np.random.gamma(0.15, 2.0, hours) * (np.random.rand(hours) < 0.2)
    upper, lower = 0.0, 0.0
    stage = np.zeros(hours)
    for t in range(hours):
        upper = 0.93 * upper + rain[t]
        lower = 0.97 * lower + 0.07 * upper
        stage[t] = lower + 0.05 * math.sin(2 * math.pi * t / 24)
    stage = (stage - stage.mean()) / stage.std()
    return np.stack([rain / (rain.std() + 1e-6), stage], 1).astype(np.float32)


class Gauge:
    def __init__(self, series, device):
        self.series = torch.from_numpy(series)
        self.device = device

    def sample(self, n):
        starts = torch.randint(0, len(self.series) - HISTORY - HORIZON, (n,))
        idx = starts[:, None] + torch.arange(HISTORY + HORIZON)
        window = self.series[idx]
        past = window[:, :HISTORY]
        future = window[:, HISTORY:, 1:]
        return past.to(self.device), future.to(self.device)


class TeacherSchedule:
    """Inverse-sigmoid decay of the teacher-forcing probability."""

    def __init__(self, k=12.0):
        self.k = k
        self.calls = 0

    @property
    def prob(self):
        return self.k / (self.k + math.exp(self.calls / self.k))

    def step(self):
        self.calls += 1

    def use_observation(self):
        return random.random() < self.prob


class Forecaster(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.encoder = nn.GRUCell(2, hidden)
        self.decoder = nn.GRUCell(1, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, 48), nn.GELU(), nn.Linear(48, 1))
        self.hidden = hidden

    def forward(self, past, future=None, schedule=None):
        h = torch.zeros(past.size(0), self.hidden, device=past.device)
        for t in range(past.size(1)):
            h = self.encoder(past[:, t], h)
        x = past[:, -1, 1:]
        outputs = []
        for t in range(HORIZON):
            h = self.decoder(x, h)
            y = self.head(h)
            outputs.append(y)
            if schedule is not None and schedule.use_observation():
                x = future[:, t]
            else:
                x = y
        return torch.stack(outputs, 1)


def main():
    device = torch_xla.device()
    gauge = Gauge(synthetic_gauge(), device)
    model = Forecaster().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = TeacherSchedule()
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=device)
        for _ in range(STEPS):
            past, future = gauge.sample(BATCH)
            optimizer.zero_grad()
            forecast = model(past, future, schedule)
            loss = nn.functional.smooth_l1_loss(forecast, future)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
            schedule.step()
            xm.mark_step()
        print(f"epoch {epoch} loss {total.item() / STEPS:.4f} teacher {schedule.prob:.2f}")

    model.eval()
    with torch.no_grad():
        past, future = gauge.sample(1024)
        forecast = model(past)
        rmse = ((forecast - future) ** 2).mean((0, 2)).sqrt()
        print("rmse by lead time", [round(v, 3) for v in rmse.cpu().tolist()])


if __name__ == "__main__":
    main()
