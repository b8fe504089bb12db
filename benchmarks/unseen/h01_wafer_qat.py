"""Quantisation-aware training of a small classifier of wafer defect maps, to be deployed in int8 on the line's controller."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

PATTERNS = ("none", "center", "ring", "edge", "scratch")


@dataclass
class Config:
    side: int = 24
    batch: int = 32
    epochs: int = 3
    steps_per_epoch: int = 40
    lr: float = 2e-3
    weight_decay: float = 1e-4
    bits: int = 8


def draw_wafers(n, side, generator):
    ax = torch.linspace(-1, 1, side)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    radius = (xx.square() + yy.square()).sqrt()
    kinds = torch.randint(0, len(PATTERNS), (n,), generator=generator)
    width = 0.12 + 0.08 * torch.rand(n, 1, 1, generator=generator)
    angle = 6.28 * torch.rand(n, 1, 1, generator=generator)
    maps = torch.stack([
        torch.zeros(n, side, side),
        torch.exp(-(radius / (2 * width)).square()),
        torch.exp(-((radius - 0.55) / width).square()),
        torch.exp(-((radius - 0.95) / width).square()),
        torch.exp(-((xx * angle.cos() + yy * angle.sin()) / (0.5 * width)).square()),
    ], 1)
    chosen = maps[torch.arange(n), kinds]
    fails = (torch.rand(n, side, side, generator=generator) < 0.06 + 0.6 * chosen).float()
    return (fails * (radius < 1)).unsqueeze(1), kinds


class RangeKeeper(nn.Module):
    """Smallest and largest activation so far: where int8 has to reach."""

    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.tensor(0.0))
        self.register_buffer("high", torch.tensor(1.0))

    @torch.no_grad()
    def update(self, x):
        low, high = x.min(), x.max()
        self.low.copy_(torch.minimum(self.low, low))
        self.high.copy_(torch.maximum(self.high, high))

    def grid(self, levels):
        scale = (self.high - self.low).clamp(min=1e-4) / (levels - 1)
        zero = (-self.low / scale).round().clamp(0, levels - 1).to(torch.int32)
        return scale, zero


class QuantConv(nn.Module):
    def __init__(self, cin, cout, stride, bits):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1)
        self.norm = nn.GroupNorm(4, cout)
        self.keeper = RangeKeeper()
        self.levels = 2 ** bits
        self.register_buffer("zero_points", torch.zeros(cout, dtype=torch.int32))

    def quantized_weight(self):
        weight = self.conv.weight
        top = weight.detach().abs().amax((1, 2, 3)).clamp(min=1e-5)
        half = self.levels // 2
        return torch.fake_quantize_per_channel_affine(weight, top / (half - 1), self.zero_points, 0, -half, half - 1)

    def forward(self, x):
        y = F.conv2d(x, self.quantized_weight(), self.conv.bias, self.conv.stride, self.conv.padding)
        y = F.relu(self.norm(y))
        if self.training:
            self.keeper.update(y)
        scale, zero = self.keeper.grid(self.levels)
        steps = (y / scale).round() + zero
        quantized = (steps.clamp(0, self.levels - 1) - zero) * scale
        return y + (quantized - y).detach()


class WaferNet(nn.Module):
    def __init__(self, bits):
        super().__init__()
        self.blocks = nn.Sequential(QuantConv(1, 16, 2, bits), QuantConv(16, 32, 2, bits), QuantConv(32, 32, 1, bits))
        self.head = nn.Linear(32, len(PATTERNS))

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch_xla.device()
        self.net = WaferNet(cfg.bits).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        total = cfg.epochs * cfg.steps_per_epoch
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, cfg.lr * 2, total_steps=total + 1)
        self.generator = torch.Generator().manual_seed(11)
        self.skipped = 0

    def batches(self, n):
        for _ in range(n):
            maps, kinds = draw_wafers(self.cfg.batch, self.cfg.side, self.generator)
            yield maps.to(self.device), kinds.to(self.device)

    def clean_gradients(self):
        """A wafer map with a broken header can make a gradient that is not finite; such a step is left out."""
        norms = torch.stack([p.grad.norm() for p in self.net.parameters() if p.grad is not None])
        total = norms.norm()
        if not torch.isfinite(total):
            self.skipped += 1
            return False
        for p in self.net.parameters():
            p.grad.mul_((5.0 / (total + 1e-6)).clamp(max=1.0))
        return True

    def train_epoch(self):
        self.net.train()
        losses = torch.zeros((), device=self.device)
        torch_xla.sync()
        for maps, kinds in self.batches(self.cfg.steps_per_epoch):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(maps), kinds, label_smoothing=0.05)
            loss.backward()
            if self.clean_gradients():
                self.optimizer.step()
            self.schedule.step()
            losses += loss.detach()
            xm.mark_step()
        return (losses / self.cfg.steps_per_epoch).item()

    @torch.no_grad()
    def accuracy(self, batches=4):
        self.net.eval()
        right = []
        for maps, kinds in self.batches(batches):
            right.append((self.net(maps).argmax(1) == kinds).float().mean())
            xm.mark_step()
        return torch.stack(right).mean().item()


def main():
    torch.manual_seed(3)
    trainer = Trainer(Config())
    for epoch in range(trainer.cfg.epochs):
        loss = trainer.train_epoch()
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {trainer.accuracy():.3f}, skipped {trainer.skipped}")


if __name__ == "__main__":
    main()
