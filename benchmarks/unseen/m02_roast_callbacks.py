"""Detect the first crack in coffee roasting profiles (bean temperature, gas, airflow, drum speed)."""
import logging
import time
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("roast")


class RoastProfiles(Dataset):
    def __init__(self, n, length=64, seed=0):
        g = np.random.default_rng(seed)
        t = np.linspace(0, 1, length)
        rate = g.uniform(2.0, 4.0, (n, 1))
        bean = 1 - np.exp(-rate * t)
        crack = (bean > 0.82 + 0.05 * g.normal(size=(n, 1))).astype(np.float32)
        gas = np.clip(1 - t + 0.1 * g.normal(size=(n, length)), 0, 1)
        air = np.clip(t + 0.1 * g.normal(size=(n, length)), 0, 1)
        drum = np.repeat(g.uniform(0.4, 0.6, (n, 1)), length, 1)
        self.x = np.stack([bean + 0.02 * g.normal(size=(n, length)), gas, air, drum], -1).astype(np.float32)
        self.y = crack.astype(np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class CrackNet(nn.Module):
    def __init__(self, d=32, layers=1):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.mix = nn.ModuleList(nn.Conv1d(d, d, 5, padding=2, groups=4) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))

    def forward(self, x):
        h = self.inp(x)
        for conv, norm in zip(self.mix, self.norm):
            h = h + torch.relu(conv(norm(h).transpose(1, 2)).transpose(1, 2))
        return self.head(h).squeeze(-1)


class FocalLoss(nn.Module):
    def __init__(self, gamma=0.0, alpha=0.6):
        super().__init__()
        self.gamma, self.alpha = gamma, alpha

    def forward(self, logits, y):
        p = torch.sigmoid(logits)
        pt = torch.where(y > 0.5, p, 1 - p).clamp(1e-5, 1 - 1e-5)
        weight = torch.where(y > 0.5, self.alpha, 1 - self.alpha)
        return (-weight * (1 - pt) ** self.gamma * pt.log()).mean()


class Callback:
    def on_step(self, trainer, loss): ...
    def on_loss(self, trainer, loss): ...
    def on_epoch(self, trainer, epoch): ...


class GammaWarmup(Callback):
    """Easy examples first: the focusing parameter rises to its final value over the first epochs."""

    def __init__(self, start, final, epochs):
        self.start, self.final, self.epochs = start, final, epochs

    def on_epoch(self, trainer, epoch):
        frac = min(1.0, (epoch + 1) / self.epochs)
        trainer.criterion.gamma = self.start + frac * (self.final - self.start)


class LossGuard(Callback):
    """Keeps the last good loss, for the message when training diverges."""

    def __init__(self):
        self.last = None

    def on_loss(self, trainer, loss):
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss diverged at step {trainer.global_step}, was {self.last}")
        self.last = loss.detach()


class Progress(Callback):
    def __init__(self, every=25):
        self.every, self.recent = every, deque(maxlen=25)

    def on_step(self, trainer, loss):
        self.recent.append(loss.detach())
        if trainer.global_step % self.every == 0:
            log.info("step %4d loss %.4f", trainer.global_step, torch.stack(list(self.recent)).mean().item())

    def on_epoch(self, trainer, epoch):
        log.info("epoch %d done, lr %.2e", epoch, trainer.scheduler.get_last_lr()[0])


class Trainer:
    def __init__(self, model, criterion, loader, callbacks, epochs, device):
        self.model, self.criterion, self.loader = model.to(device), criterion, loader
        self.callbacks, self.epochs, self.device = callbacks, epochs, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs * len(loader))
        self.global_step = 0

    def fire(self, hook, *args):
        for c in self.callbacks:
            getattr(c, hook)(self, *args)

    def fit(self):
        for epoch in range(self.epochs):
            for x, y in self.loader:
                x, y = x.to(self.device), y.to(self.device)
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                self.fire("on_loss", loss)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                xm.mark_step()
                self.global_step += 1
                self.fire("on_step", loss)
            self.fire("on_epoch", epoch)


def main():
    torch.manual_seed(3)
    data = RoastProfiles(640)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    epochs = 6
    callbacks = [GammaWarmup(0.5, 2.5, epochs - 1), LossGuard(), Progress()]
    trainer = Trainer(CrackNet(), FocalLoss(gamma=0.5), loader, callbacks, epochs, torch_xla.device())
    start = time.perf_counter()
    trainer.fit()
    log.info("finished in %.1fs", time.perf_counter() - start)


if __name__ == "__main__":
    main()
