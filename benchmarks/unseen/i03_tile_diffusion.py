"""Diffusion model for texture tiles (diffusers' UNet and scheduler) on an XLA device: crops of a few sizes, EMA weights, losses by noise level."""
import math
import random
from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torch_xla
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel


@dataclass
class Settings:
    tiles: int = 128
    canvas: int = 24
    sides: tuple = (12, 15, 18, 21)
    batch: int = 8
    epochs: int = 4
    lr: float = 2e-3
    levels: int = 200
    bin_width: int = 50
    seed: int = 9


def textures(count, side, seed):
    """Stripes and checks of random direction and pitch."""
    gen = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(count, 1, 1, generator=gen)
    pitch = 0.6 + 1.4 * torch.rand(count, 1, 1, generator=gen)
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    wave = torch.sin(pitch * (x * torch.cos(angle) + y * torch.sin(angle)))
    other = torch.sin(pitch * (y * torch.cos(angle) - x * torch.sin(angle)))
    checks = (torch.rand(count, 1, 1, generator=gen) < 0.5).float()
    return (wave * (1 - checks) + wave * other * checks).unsqueeze(1)


class CropBatches:
    """Batches of crops; all crops of a batch have one side, drawn for the batch."""

    def __init__(self, images, settings):
        self.images, self.settings = images, settings
        self.rng = random.Random(settings.seed)

    def __len__(self):
        return len(self.images) // self.settings.batch

    def __iter__(self):
        order = list(range(len(self.images)))
        self.rng.shuffle(order)
        for i in range(len(self)):
            pick = order[i * self.settings.batch:(i + 1) * self.settings.batch]
            side = self.rng.choice(self.settings.sides)
            top = self.rng.randint(0, self.settings.canvas - side)
            left = self.rng.randint(0, self.settings.canvas - side)
            yield self.images[pick, :, top:top + side, left:left + side]


class LevelLosses:
    """Mean loss by noise level, which tells where the model is weak."""

    def __init__(self, width):
        self.width = width
        self.sums, self.counts = defaultdict(float), defaultdict(int)

    def update(self, levels, losses):
        for level, loss in zip(levels.tolist(), losses):
            self.sums[level // self.width] += float(loss)
            self.counts[level // self.width] += 1

    def table(self):
        rows = []
        for level in sorted(self.counts):
            rows.append(f"{level * self.width}: {self.sums[level] / self.counts[level]:.3f}")
        return ", ".join(rows)


def build_unet(settings):
    return UNet2DModel(
        sample_size=settings.canvas, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8,),
        down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), norm_num_groups=4, add_attention=False,
        mid_block_type=None)


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    device = torch_xla.device()
    batches = CropBatches(textures(settings.tiles, settings.canvas, settings.seed), settings)
    scheduler = DDPMScheduler(num_train_timesteps=settings.levels, beta_schedule="squaredcos_cap_v2")
    unet = build_unet(settings).to(device)
    ema = EMAModel(unet.parameters(), decay=0.99)
    optimizer = torch.optim.SGD(unet.parameters(), lr=settings.lr, momentum=0.9)

    for epoch in range(settings.epochs):
        by_level = LevelLosses(settings.bin_width)
        for clean in batches:
            levels = torch.randint(0, settings.levels, (len(clean),))
            noise = torch.randn_like(clean)
            noisy = scheduler.add_noise(clean, noise, levels)
            predicted = unet(noisy.to(device), levels.to(device)).sample
            losses = F.mse_loss(predicted, noise.to(device), reduction="none").mean((1, 2, 3))
            losses.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            ema.step(unet.parameters())
            torch_xla.sync()
            by_level.update(levels, losses.detach())
        print(f"epoch {epoch}: loss by level {by_level.table()}")
    ema.copy_to(unet.parameters())
    torch_xla.sync()


if __name__ == "__main__":
    main()
