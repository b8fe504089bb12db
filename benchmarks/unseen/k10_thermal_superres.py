"""Super-resolution of thermal images: two scales share a trunk; gradients are accumulated over a patch of each."""
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

SCALES = (2, 3)


@dataclass
class Config:
    width: int = 12
    blocks: int = 2
    low: int = 12
    batch: int = 8
    steps: int = 200
    log_every: int = 50
    eval_every: int = 100
    lr: float = 2e-3
    scales: tuple = field(default=SCALES)


def thermal_scene(count, size, generator):
    """Warm blobs over a cool gradient, smooth enough to be guessed from fewer pixels."""
    axis = torch.linspace(0, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    slope = torch.rand(count, 2, 1, 1, generator=generator)
    scene = 0.2 * (slope[:, 0] * x + slope[:, 1] * y)
    for _ in range(4):
        cx, cy, r = (torch.rand(count, 1, 1, generator=generator) for _ in range(3))
        scene = scene + torch.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (0.002 + 0.02 * r))
    return scene.unsqueeze(1)


class PatchSource:
    def __init__(self, config, seed):
        self.config = config
        g = torch.Generator().manual_seed(seed)
        self.pools = {s: thermal_scene(96, config.low * s, g) for s in config.scales}
        self.generator = g

    def draw(self, scale):
        pool = self.pools[scale]
        rows = torch.randint(0, len(pool), (self.config.batch,), generator=self.generator)
        high = pool[rows]
        return F.avg_pool2d(high, scale), high

    def all(self, scale):
        high = self.pools[scale]
        return F.avg_pool2d(high, scale), high


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.second(F.relu(self.first(x)))


class MultiScaleNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        w = config.width
        self.head = nn.Conv2d(1, w, 3, padding=1)
        self.trunk = nn.Sequential(*[ResidualBlock(w) for _ in range(config.blocks)])
        self.tails = nn.ModuleDict({str(s): nn.Conv2d(w, s * s, 3, padding=1) for s in config.scales})

    def forward(self, low, scale: int):
        x = self.head(low)
        x = x + self.trunk(x)
        high = F.pixel_shuffle(self.tails[str(scale)](x), scale)
        return high + F.interpolate(low, scale_factor=scale, mode="bilinear", align_corners=False)


@torch.no_grad()
def psnr(model, source, scales):
    model.eval()
    out = {}
    for s in scales:
        low, high = source.all(s)
        mse = F.mse_loss(model(low, s), high)
        out[s] = (-10 * torch.log10(mse)).item()
    model.train()
    return out


def main():
    config = Config()
    torch.manual_seed(1)
    train, valid = PatchSource(config, 1), PatchSource(config, 2)
    net = MultiScaleNet(config)
    model = torch.compile(net, dynamic=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    window = torch.zeros(())
    began = time.perf_counter()
    for step in range(1, config.steps + 1):
        for scale in config.scales:
            low, high = train.draw(scale)
            loss = F.l1_loss(model(low, scale), high) / len(config.scales)
            loss.backward()
            window += loss.detach()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % config.log_every == 0:
            print(f"step {step:4d}  l1 {window.item() / config.log_every:.5f}  {time.perf_counter() - began:.1f} s")
            window.zero_()
        if step % config.eval_every == 0:
            for scale, value in psnr(model, valid, config.scales).items():
                print(f"step {step:4d}  x{scale}  psnr {value:.2f} dB")


if __name__ == "__main__":
    main()
