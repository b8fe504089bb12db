"""Keyword spotting on synthetic spectrograms with time/frequency masking."""
import random
from dataclasses import dataclass

import torch_xla
import torch
import torch.nn as nn


@dataclass
class Config:
    n_mels: int = 24
    frames: int = 48
    classes: int = 8
    hidden: int = 32
    batch: int = 24
    epochs: int = 2
    steps_per_epoch: int = 12
    lr: float = 2e-2
    freq_width: int = 6
    time_width: int = 12
    seed: int = 3


class MaskAugment(nn.Module):
    """Blanks one band of frequencies and one span of time, as in SpecAugment."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def forward(self, spec):
        if not self.training or random.random() > 0.3:
            return spec
        c = self.cfg
        f = random.randint(1, c.freq_width)
        f0 = random.randint(0, c.n_mels - f)
        t = random.randint(1, c.time_width)
        t0 = random.randint(0, c.frames - t)
        spec = spec.clone()
        spec[:, f0:f0 + f, :] = 0
        spec[:, :, t0:t0 + t] = 0
        return spec


class KeywordNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.augment = MaskAugment(cfg)
        self.conv = nn.Sequential(
            nn.Conv1d(cfg.n_mels, cfg.hidden, 5, padding=2), nn.GELU())
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(cfg.hidden * 2, cfg.classes)

    def forward(self, spec):
        h = self.conv(self.augment(spec))
        pooled = torch.cat([h.mean(-1), h.amax(-1)], dim=-1)
        return self.out(self.drop(pooled))


class Spectrograms:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(cfg.seed)
        self.templates = torch.randn(cfg.classes, cfg.n_mels, cfg.frames, generator=self.gen)

    def batch(self):
        y = torch.randint(0, self.cfg.classes, (self.cfg.batch,), generator=self.gen)
        x = self.templates[y]
        return x + 0.8 * torch.randn(x.shape, generator=self.gen), y


class Meter:
    def __init__(self, device):
        self.loss = torch.zeros((), device=device)
        self.hits = torch.zeros((), device=device)
        self.n = 0

    def update(self, loss, logits, y):
        self.loss += loss.detach() * y.numel()
        self.hits += (logits.argmax(-1) == y).sum()
        self.n += y.numel()

    def summary(self):
        loss, hits = torch.stack([self.loss, self.hits]).tolist()
        return f"loss {loss / self.n:.4f} acc {hits / self.n:.3f}"


def run_epoch(model, data, steps, device, criterion, optimizer=None, scheduler=None):
    model.train(optimizer is not None)
    meter = Meter(device)
    with torch.set_grad_enabled(optimizer is not None):
        for _ in range(steps):
            x, y = data.batch()
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = criterion(logits, y)
            if optimizer is not None:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                scheduler.step()
            meter.update(loss, logits, y)
            torch_xla.sync()
    return meter.summary()


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch_xla.device()
    data = Spectrograms(cfg)
    model = KeywordNet(cfg).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    total = cfg.epochs * cfg.steps_per_epoch
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr * 3, total_steps=total + 1)
    for epoch in range(cfg.epochs):
        train = run_epoch(model, data, cfg.steps_per_epoch, device, criterion, optimizer, scheduler)
        valid = run_epoch(model, data, 5, device, criterion)
        print(f"[{epoch}] train {train} | valid {valid}", flush=True)


if __name__ == "__main__":
    main()
