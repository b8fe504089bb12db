"""Bread-crumb texture regression: compiled augmentation, loss and metric around a plain model."""
import logging

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("crumb")
SCAN, CROP = 36, 32
QUANTITIES = ("porosity", "anisotropy", "wall")


def loaves(n, seed):
    rng = np.random.default_rng(seed)
    truth = rng.random((n, 3)).astype(np.float32)
    noise = torch.from_numpy(rng.standard_normal((n, 1, SCAN, SCAN)).astype(np.float32))
    wide = F.avg_pool2d(noise, (3, 7), 1, (1, 3))
    tall = F.avg_pool2d(noise, (7, 3), 1, (3, 1))
    t = torch.from_numpy(truth)[..., None, None]
    image = t[:, 1:2] * wide + (1 - t[:, 1:2]) * tall + 0.2 * t[:, 2:3] * noise
    return torch.sigmoid(12 * (image - 0.3 * (0.5 - t[:, :1]))), torch.from_numpy(truth)


@torch.compile
def augment(window, truth, weight):
    partner = torch.roll(window, 1, 0)
    mixed = weight * window + (1 - weight) * partner
    shade = 1 + 0.1 * torch.randn(mixed.shape[0], 1, 1, 1)
    mixed = (mixed * shade).clamp(0, 1) ** 0.9
    return mixed, weight * truth + (1 - weight) * torch.roll(truth, 1, 0)


@torch.compile
def evidential_loss(prediction, truth):
    mean, raw_scale = prediction.chunk(2, 1)
    scale = F.softplus(raw_scale) + 1e-3
    z = (truth - mean) / scale
    return (torch.log(scale) + torch.log1p(z.square() / 4) * 2.5).mean()


@torch.compile(backend="aot_eager")
def concordance(prediction, truth):
    p, t = prediction - prediction.mean(0), truth - truth.mean(0)
    covariance = (p * t).mean(0)
    gap = (prediction.mean(0) - truth.mean(0)).square()
    return 2 * covariance / (p.square().mean(0) + t.square().mean(0) + gap)


class CrumbNet(nn.Sequential):
    def __init__(self, width=12):
        super().__init__(
            nn.Conv2d(1, width, 5, 2, 2), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, 2, 1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 2 * len(QUANTITIES)))


@torch.no_grad()
def evaluate(net, scans, truth):
    middle = (SCAN - CROP) // 2
    prediction = net(scans[:, :, middle:middle + CROP, middle:middle + CROP])
    mean, _ = prediction.chunk(2, 1)
    return dict(zip(QUANTITIES, concordance(mean, truth).tolist()))


def main():
    torch.manual_seed(2)
    np.random.seed(2)
    scans, truth = loaves(768, 1)
    held = loaves(192, 2)
    net = CrumbNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    for step in range(400):
        rows = torch.randint(len(scans), (48,))
        top, left = np.random.randint(0, SCAN - CROP + 1, 2).tolist()
        window = scans[rows][:, :, top:top + CROP, left:left + CROP].contiguous()
        weight = torch.tensor(np.random.beta(0.4, 0.4), dtype=torch.float32)
        images, labels = augment(window, truth[rows], weight)
        loss = evidential_loss(net(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            summary = ", ".join(f"{k} {v:.2f}" for k, v in evaluate(net, *held).items())
            logger.info("step %d loss %.3f concordance: %s", step + 1, loss.item(), summary)


if __name__ == "__main__":
    main()
