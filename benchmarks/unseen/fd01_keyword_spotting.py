"""Keyword spotting on synthetic log-mel spectrograms, trained on an XLA device.

Eight "keywords" are drawn as chirps with different slopes and centre bands; a small
convolutional network with random time shifts tells them apart.
"""
import argparse
import math
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

N_MELS, N_FRAMES, N_WORDS = 32, 48, 8


@dataclass
class Config:
    epochs: int = 4
    batch: int = 32
    train_size: int = 512
    test_size: int = 128
    lr: float = 3e-3
    reach: int = 3


def make_clips(n, rng):
    """Spectrograms of chirps: a ridge that moves over the mel bands, in noise."""
    labels = rng.integers(0, N_WORDS, n)
    frames = np.arange(N_FRAMES)[None, None, :]
    mels = np.arange(N_MELS)[None, :, None]
    slope = ((labels % 4) - 1.5) * 0.25
    centre = np.where(labels < 4, 10.0, 22.0) + rng.normal(0, 0.8, n)
    onset = rng.normal(0, 2.0, n)
    ridge = centre[:, None, None] + slope[:, None, None] * (frames - N_FRAMES / 2 + onset[:, None, None])
    power = np.exp(-0.5 * ((mels - ridge) / 1.5) ** 2)
    clips = power + rng.normal(0, 0.5, power.shape)
    return torch.tensor(clips[:, None], dtype=torch.float32), torch.tensor(labels, dtype=torch.long)


class TimeShift:
    """Moves a batch by a few frames, wrapping around, and adds a little noise."""

    def __init__(self, reach, noise=0.1, seed=0):
        self.reach, self.noise = reach, noise
        self.rng = random.Random(seed)

    def __call__(self, spec):
        shift = self.rng.randint(-self.reach, self.reach)
        spec = torch.roll(spec, shifts=shift, dims=-1)
        return spec + self.noise * torch.randn_like(spec)


class KeywordNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.head = nn.Linear(2 * width * (N_MELS // 4), N_WORDS)

    def forward(self, spec):
        h = F.relu(self.conv1(spec))
        h = F.relu(self.conv2(h))
        return self.head(h.mean(dim=-1).flatten(1))


def evaluate(model, clips, labels, batch):
    model.eval()
    hits = 0
    with torch.no_grad():
        for i in range(0, len(clips), batch):
            correct = (model(clips[i:i + batch]).argmax(1) == labels[i:i + batch]).sum()
            hits = hits + correct
            torch_xla.sync()
    return hits.item() / len(clips)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=parser.parse_args().epochs)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()

    train_x, train_y = make_clips(cfg.train_size, rng)
    test_x, test_y = make_clips(cfg.test_size, rng)
    test_x, test_y = test_x.to(device), test_y.to(device)
    augment = TimeShift(cfg.reach)
    model = KeywordNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr * 20, momentum=0.9)

    for epoch in range(cfg.epochs):
        started = time.time()
        model.train()
        order = torch.randperm(cfg.train_size)
        losses = []
        for i in range(0, cfg.train_size, cfg.batch):
            rows = order[i:i + cfg.batch]
            spec, target = train_x[rows].to(device), train_y[rows].to(device)
            spec = augment(spec)
            loss = F.cross_entropy(model(spec), target, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            xm.mark_step()
            losses.append(loss.detach())
        mean_loss = torch.stack(losses).mean().item()
        accuracy = evaluate(model, test_x, test_y, cfg.batch)
        print(f"epoch {epoch}: loss {mean_loss:.3f} (chance {math.log(N_WORDS):.3f}) "
              f"accuracy {accuracy:.3f} in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
