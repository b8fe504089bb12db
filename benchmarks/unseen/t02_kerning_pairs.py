"""Optical kerning: how much space goes between two glyphs?

Each glyph is described by the left and right profile of its outline (distance of the
ink from the side bearing at 24 heights).  A residual network reads the right profile of
the first glyph and the left profile of the second, and predicts the kern in font units.
Trained with residual blocks that are skipped at random, as in "Deep Networks with
Stochastic Depth".
"""
import logging
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

logger = logging.getLogger("kerning")

HEIGHTS = 24
GLYPHS = 120


@dataclass
class Settings:
    batch: int = 32
    epochs: int = 3
    width: int = 24
    depth: int = 3
    survival: float = 0.8
    lr: float = 1e-3
    clip: float = 1.0


def draw_outlines(rng):
    y = np.linspace(0, 1, HEIGHTS)
    sides = []
    for _ in range(2):
        curve = rng.uniform(0, 60, (GLYPHS, 1)) + rng.uniform(-80, 80, (GLYPHS, 1)) * (y - 0.5)
        bump = rng.uniform(0, 90, (GLYPHS, 1)) * np.sin(np.pi * y * rng.integers(1, 4, (GLYPHS, 1)))
        sides.append(np.clip(curve + np.abs(bump), 0, 160).astype(np.float32))
    return sides


class GlyphPairs(Dataset):
    def __init__(self, left, right, count, seed):
        rng = np.random.default_rng(seed)
        self.pairs = rng.integers(0, GLYPHS, (count, 2))
        self.left, self.right = left, right

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        a, b = self.pairs[k]
        gap = self.right[a] + self.left[b]
        area = np.minimum(gap, 110).mean()
        kern = 0.8 * (70 - area) - 0.4 * gap.min()
        x = np.concatenate([self.right[a], self.left[b]]) / 80 - 1
        return torch.from_numpy(x), torch.tensor(kern / 40, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


class KernNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(2 * HEIGHTS, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg.width) for _ in range(cfg.depth))
        rates = torch.linspace(1.0, cfg.survival, cfg.depth + 1)[1:]
        self.keep = [float(r) - 0.12 for r in rates]
        self.out = nn.Linear(cfg.width, 1)

    def gates(self):
        if not self.training:
            return self.keep
        return [float(random.random() < k) for k in self.keep]

    def forward(self, x):
        x = self.embed(x)
        for gate, block in zip(self.gates(), self.blocks):
            x = x + gate * block(x)
        return self.out(x).squeeze(-1)


def warmup(step, total):
    return min(1.0, (step + 1) / 20) * (1 - 0.9 * step / total)


def fit(model, loader, cfg, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    total = cfg.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: warmup(s, total))
    running = torch.zeros((), device=device)
    step = 0
    for epoch in range(cfg.epochs):
        running.zero_()
        for x, kern in loader:
            torch.manual_seed(1000 + step)
            x, kern = x.to(device), kern.to(device)
            noisy = x + 0.02 * torch.randn_like(x)
            loss = nn.functional.smooth_l1_loss(model(noisy), kern)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            xm.optimizer_step(optimizer)
            schedule.step()
            running += loss.detach()
            torch_xla.sync()
            logger.debug("step %d loss %s", step, running)
            step += 1
        logger.info("epoch %d: mean loss %.4f", epoch, running.item() / len(loader))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros((), device=device)
    for x, kern in loader:
        total += (model(x.to(device)) - kern.to(device)).abs().sum()
        torch_xla.sync()
    model.train()
    return 40 * total.item() / len(loader.dataset)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    cfg = Settings()
    random.seed(5)
    torch.manual_seed(5)
    left, right = draw_outlines(np.random.default_rng(0))
    train = DataLoader(GlyphPairs(left, right, 1920, 1), cfg.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(GlyphPairs(left, right, 512, 2), 128)
    device = torch_xla.device()
    model = KernNet(cfg).to(device)
    fit(model, train, cfg, device)
    logger.info("mean error on held-out pairs: %.1f units", evaluate(model, held_out, device))


if __name__ == "__main__":
    main()
