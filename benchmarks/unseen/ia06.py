"""Forecast household electricity load with an encoder-decoder and scheduled sampling."""
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

PAST, AHEAD, HIDDEN = 24, 4, 48


def households(n=60, hours=24 * 14, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    morning = np.exp(-(((t % 24) - 8) / 2.0) ** 2)
    evening = np.exp(-(((t % 24) - 19) / 3.0) ** 2)
    weekend = ((t // 24) % 7 >= 5).astype(float)
    load = []
    for _ in range(n):
        a, b, c = rng.gamma(3, 0.4, 3)
        noise = np.convolve(rng.normal(0, 0.15, hours), np.ones(3) / 3, "same")
        load.append(a * morning + b * evening + c * weekend * 0.5 + noise)
    load = np.asarray(load, np.float32)
    return (load - load.mean(1, keepdims=True)) / load.std(1, keepdims=True)


def windows(load, stride):
    past, future = [], []
    for start in range(0, load.shape[1] - PAST - AHEAD, stride):
        past.append(load[:, start : start + PAST])
        future.append(load[:, start + PAST : start + PAST + AHEAD])
    return torch.from_numpy(np.concatenate(past)), torch.from_numpy(np.concatenate(future))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PAST, 96), nn.GELU(), nn.Linear(96, HIDDEN), nn.Tanh())
        self.cell = nn.GRUCell(1, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, past, future=None, ratio=0.0):
        state = self.encoder(past)
        value = past[:, -1:]
        outputs = []
        for k in range(AHEAD):
            state = self.cell(value, state)
            guess = value + self.out(state)
            outputs.append(guess)
            if future is not None and random.random() < ratio:
                value = future[:, k : k + 1]
            else:
                value = guess
        return torch.cat(outputs, 1)


class Trainer:
    def __init__(self, device, epochs=4):
        self.device, self.epochs = device, epochs
        self.model = Forecaster().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def ratio(self, epoch):
        """Share of steps that see the truth: from 0.9 down to 0.1."""
        return 0.9 - 0.8 * epoch / max(self.epochs - 1, 1)

    def epoch(self, loader, epoch):
        self.model.train()
        total = torch.zeros((), device=self.device)
        for past, future in loader:
            guess = self.model(past, future, self.ratio(epoch))
            loss = nn.functional.smooth_l1_loss(guess, future)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            xm.mark_step()
        self.schedule.step()
        return total.item() / len(loader)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        error = torch.zeros(AHEAD, device=self.device)
        for past, future in loader:
            error += (self.model(past) - future).abs().mean(0)
            xm.mark_step()
        return (error / len(loader)).cpu()


def main():
    random.seed(1)
    torch.manual_seed(1)
    device = xm.xla_device()
    train = TensorDataset(*windows(households(seed=1), 24))
    test = TensorDataset(*windows(households(seed=2, n=32), 24))
    make = lambda data, shuffle: pl.MpDeviceLoader(DataLoader(data, 64, shuffle=shuffle, drop_last=True), device)
    training, testing = make(train, True), make(test, False)
    trainer = Trainer(device)
    start = time.time()
    for epoch in range(trainer.epochs):
        loss = trainer.epoch(training, epoch)
        print(f"epoch {epoch}: loss {loss:.4f}, truth shown {trainer.ratio(epoch):.1f} ({time.time() - start:.1f} s)")
    error = trainer.evaluate(testing)
    print("absolute error by hour ahead:", " ".join(f"{e:.3f}" for e in error.tolist()))


if __name__ == "__main__":
    main()
