"""Crack segmentation on synthetic concrete images with an annealed focal loss.

The focusing parameter starts high (hard pixels first) and goes down to zero (plain cross
entropy) over the run, so that the probabilities come out calibrated.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


@dataclass
class Settings:
    size: int = 32
    images: int = 80
    batch: int = 16
    epochs: int = 2
    lr: float = 0.03
    gamma_start: float = 3.0
    positive_weight: float = 12.0


def draw(count, size, generator):
    """Grey texture with a thin dark random walk across it, and the mask of that walk."""
    noise = torch.randn(count, 1, size // 4, size // 4, generator=generator)
    image = 0.4 * F.interpolate(noise, size=size, mode="bilinear") + 0.3 * torch.randn(
        count, 1, size, size, generator=generator)
    mask = torch.zeros(count, 1, size, size)
    for k in range(count):
        row = size / 2 + float(torch.randn((), generator=generator)) * size / 8
        drift = 0.0
        for col in range(size):
            drift = 0.8 * drift + 0.5 * float(torch.randn((), generator=generator))
            row = min(max(row + drift, 1), size - 2)
            mask[k, 0, int(row):int(row) + 2, col] = 1
        if k % 2:
            mask[k] = mask[k].transpose(-1, -2).clone()
    image = image - 2.5 * mask
    return image, mask


class Annealing:
    """Cosine from `start` to zero."""

    def __init__(self, start, steps):
        self.start, self.steps, self.step_no = start, steps, 0

    @property
    def value(self):
        return self.start * 0.5 * (1 + math.cos(math.pi * min(self.step_no / self.steps, 1.0)))

    def step(self):
        self.step_no += 1


class FocalLoss(nn.Module):
    def __init__(self, positive_weight, schedule):
        super().__init__()
        self.positive_weight = positive_weight
        self.schedule = schedule

    def forward(self, logits, target):
        ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        wrongness = 1 - torch.exp(-ce)
        weight = 1 + (self.positive_weight - 1) * target
        return (weight * (wrongness + 1e-4) ** self.schedule.value * ce).mean()


def network(width=8):
    layers, channels = [], 1
    for dilation in (1, 2, 4):
        layers += [nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 1))


@torch.no_grad()
def dice(model, image, mask):
    found = (model(image) > 0).float()
    score = 2 * (found * mask).sum() / (found.sum() + mask.sum()).clamp_min(1)
    return score.item()


def main(cfg=Settings()):
    torch.manual_seed(9)
    generator = torch.Generator().manual_seed(9)
    device = torch_xla.device()
    image, mask = (t.to(device) for t in draw(cfg.images, cfg.size, generator))
    test_image, test_mask = (t.to(device) for t in draw(32, cfg.size, generator))

    model = network().to(device)
    steps = cfg.epochs * (cfg.images // cfg.batch)
    schedule = Annealing(cfg.gamma_start, steps)
    criterion = FocalLoss(cfg.positive_weight, schedule)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.2, total_iters=steps)

    for epoch in range(cfg.epochs):
        running = torch.zeros((), device=device)
        for rows in torch.randperm(cfg.images, generator=generator).split(cfg.batch):
            rows = rows.to(device)
            opt.zero_grad()
            loss = criterion(model(image[rows]), mask[rows])
            loss.backward()
            xm.optimizer_step(opt)
            decay.step()
            schedule.step()
            running += loss.detach()
            xm.mark_step()
        xm.master_print(f"epoch {epoch}: focal loss {running.item() * cfg.batch / cfg.images:.4f} "
                        f"gamma {schedule.value:.2f} lr {decay.get_last_lr()[0]:.3f} "
                        f"dice {dice(model, test_image, test_mask):.3f}")


if __name__ == "__main__":
    main()
