"""Point-wise anomaly detection in sensor windows with a dilated temporal CNN."""
import math
import time

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

WINDOW, CHANNELS, WIDTH = 256, 3, 24
TRAIN_WINDOWS, TEST_WINDOWS, BATCH = 1024, 256, 8


def make_windows(count, generator):
    """Three correlated oscillating channels; anomalies are spikes, dropouts and frequency bursts."""
    t = torch.arange(WINDOW) / WINDOW
    phase = torch.rand(count, CHANNELS, 1, generator=generator) * 2 * math.pi
    rate = 3 + 5 * torch.rand(count, CHANNELS, 1, generator=generator)
    x = torch.sin(2 * math.pi * rate * t + phase) + 0.2 * torch.randn(count, CHANNELS, WINDOW, generator=generator)
    y = torch.zeros(count, WINDOW)
    kind = torch.randint(0, 4, (count,), generator=generator)
    start = torch.randint(10, WINDOW - 50, (count,), generator=generator)
    inside = (torch.arange(WINDOW) >= start[:, None]) & (torch.arange(WINDOW) < start[:, None] + 24)
    spike, dropout, burst = (((kind == k)[:, None] & inside)[:, None] for k in (1, 2, 3))
    x = x + spike * 1.5 * torch.randn(count, CHANNELS, WINDOW, generator=generator)
    x = torch.where(dropout, 0.05 * x, x)
    x = x + burst * 0.8 * torch.sin(2 * math.pi * 60 * t)
    y[(kind > 0)[:, None] & inside] = 1.0
    return x, y


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=dilation, dilation=dilation)
        self.gate = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        return x + torch.tanh(self.conv(x)) * torch.sigmoid(self.gate(x))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(CHANNELS, WIDTH, 1)
        self.blocks = nn.Sequential(*[Block(2 ** i) for i in range(4)])
        self.leave = nn.Conv1d(WIDTH, 1, 1)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x))).squeeze(1)


class Monitor:
    """Keeps the figures shown in the log."""

    def __init__(self):
        self.loss = MeanMetric()
        self.auroc = BinaryAUROC(thresholds=None)
        self.ap = BinaryAveragePrecision(thresholds=None)

    def update(self, loss, logits, target):
        self.loss.update(loss.detach())
        prob = logits.detach().sigmoid()
        self.auroc.update(prob.flatten(), target.flatten().long())
        self.ap.update(prob.flatten(), target.flatten().long())

    def summary(self):
        return {"loss": self.loss.compute().item(),
                "auroc": self.auroc.compute().item(),
                "ap": self.ap.compute().item()}

    def reset(self):
        for metric in (self.loss, self.auroc, self.ap):
            metric.reset()


def show(tag, summary, began):
    print(f"{tag:<14}" + "  ".join(f"{k} {v:.3f}" for k, v in summary.items())
          + f"  {time.perf_counter() - began:.1f} s")


def main(epochs=3):
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(8)
    train_x, train_y = make_windows(TRAIN_WINDOWS, generator)
    test_x, test_y = make_windows(TEST_WINDOWS, generator)
    model = Detector()
    detector = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weight = torch.tensor(6.0)
    monitor, history = Monitor(), []
    for epoch in range(epochs):
        began = time.perf_counter()
        monitor.reset()
        for step, rows in enumerate(torch.randperm(TRAIN_WINDOWS).split(BATCH)):
            logits = detector(train_x[rows])
            loss = F.binary_cross_entropy_with_logits(logits, train_y[rows], pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.update(loss, logits, train_y[rows])
            history.append(monitor.summary())
            if step % 64 == 63:
                show(f"{epoch}.{step:02d}", history[-1], began)
        monitor.reset()
        with torch.no_grad():
            for x, y in zip(test_x.split(BATCH), test_y.split(BATCH)):
                logits = detector(x)
                monitor.update(F.binary_cross_entropy_with_logits(logits, y, pos_weight=weight), logits, y)
        show(f"{epoch} test", monitor.summary(), began)


if __name__ == "__main__":
    main()
