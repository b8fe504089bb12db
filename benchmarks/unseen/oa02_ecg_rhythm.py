"""Heart rhythm classification from two-lead ECG windows."""
import dataclasses
import random
import time

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    classes: int = 5
    length: int = 512
    train_windows: int = 320
    val_windows: int = 384
    batch: int = 32
    epochs: int = 2
    lr: float = 2e-3
    max_shift: int = 200
    seed: int = 3


class EcgWindows(Dataset):
    def __init__(self, n, cfg, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(cfg.length) / 250.0
        self.y = rng.integers(0, cfg.classes, n)
        rate = 0.8 + 0.4 * self.y[:, None] + rng.normal(0, 0.05, (n, 1))
        phase = rng.uniform(0, 6.28, (n, 1))
        beat = np.exp(8 * (np.cos(6.28 * rate * t + phase) - 1))
        lead2 = 0.6 * np.roll(beat, 5, axis=1)
        x = np.stack([beat, lead2], 1) + rng.normal(0, 0.1, (n, 2, cfg.length))
        self.x = x.astype(np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), int(self.y[i])


class Augment:
    """Gain, noise and a circular shift; everything happens on the device."""

    def __init__(self, cfg):
        self.max_shift = cfg.max_shift

    def __call__(self, x):
        gain = 1.0 + 0.2 * torch.randn(x.shape[0], 1, 1, device=x.device)
        x = x * gain + 0.02 * torch.randn_like(x)
        shift = random.randint(-self.max_shift, self.max_shift)
        return torch.roll(x, shift, dims=-1)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 7, stride=2, padding=3)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class RhythmNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.Sequential(Block(2, 16), Block(16, 24), Block(24, 32))
        self.head = nn.Linear(32, cfg.classes)

    def forward(self, x):
        return self.head(self.blocks(x).mean(-1))


def evaluate(model, loader, device, cfg):
    model.eval()
    table = np.zeros((cfg.classes, cfg.classes), dtype=np.int64)
    with torch.no_grad():
        for x, y in loader:
            pred = model(x.to(device)).argmax(-1)
            xm.mark_step()
            for p, t in zip(pred, y):
                table[int(t), int(p)] += 1
    model.train()
    recall = table.diagonal() / np.maximum(table.sum(1), 1)
    return table.trace() / table.sum(), recall.mean()


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch.device("xla")
    train = DataLoader(EcgWindows(cfg.train_windows, cfg, 1), cfg.batch, shuffle=True, drop_last=True)
    val = DataLoader(EcgWindows(cfg.val_windows, cfg, 2), cfg.batch)
    model, augment = RhythmNet(cfg).to(device), Augment(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * len(train))
    for epoch in range(cfg.epochs):
        t0, seen = time.time(), torch.zeros((), device=device)
        for x, y in train:
            x, y = augment(x.to(device)), y.to(device)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            seen += loss.detach()
            xm.mark_step()
        acc, recall = evaluate(model, val, device, cfg)
        print(f"epoch {epoch} loss {seen.item() / len(train):.3f} acc {acc:.3f} recall {recall:.3f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
