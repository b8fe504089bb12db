"""Denoising diffusion of snowflakes: a small diffusers UNet trained with accelerate."""
import argparse
import copy
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, TensorDataset

import torch_xla.core.xla_model as xm


def grow_flakes(n, size, seed):
    """Six-fold patterns: a few radial waves, mirrored, faded towards the edge."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    radius, angle = np.hypot(yy, xx), np.arctan2(yy, xx)
    flakes = np.empty((n, 1, size, size), np.float32)
    for i in range(n):
        arms = np.cos(6 * angle) * rng.uniform(0.5, 1)
        rings = np.cos(rng.uniform(4, 12) * radius + rng.uniform(0, math.pi))
        flakes[i, 0] = np.tanh(2 * (arms + rings)) * (radius < rng.uniform(0.7, 1.0))
    return torch.from_numpy(flakes)


def build_unet(size):
    return UNet2DModel(
        sample_size=size,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8,),
        down_block_types=("DownBlock2D",),
        up_block_types=("UpBlock2D",),
        norm_num_groups=4,
        add_attention=False,
    )


class Average:
    """Exponential moving average; the decay warms up, so early weights are forgotten."""

    def __init__(self, model, decay=0.99):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        keep = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.mul_(keep).add_(theirs, alpha=1 - keep)


def denoising_loss(model, scheduler, flakes, noise, timesteps):
    noisy = scheduler.add_noise(flakes, noise, timesteps)
    return F.mse_loss(model(noisy, timesteps).sample, noise)


@torch.no_grad()
def validate(model, scheduler, loader, device):
    """Loss at eight fixed noise levels, with the same noise each time."""
    total, batches = torch.zeros((), device=device), 0
    generator = torch.Generator().manual_seed(0)
    for (flakes,) in loader:
        noise = torch.randn(flakes.shape, generator=generator).to(device)
        timesteps = torch.arange(len(flakes), device=device) % 8 * (scheduler.config.num_train_timesteps // 8)
        total += denoising_loss(model, scheduler, flakes.to(device), noise, timesteps)
        batches += 1
        xm.mark_step()
    return total.item() / batches


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--flakes", type=int, default=1600)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=50)
    options = parser.parse_args()

    set_seed(21)
    accelerator = Accelerator(gradient_accumulation_steps=options.accumulate)
    device = accelerator.device
    train = DataLoader(TensorDataset(grow_flakes(options.flakes, options.size, 0)), 16, shuffle=True, drop_last=True)
    held_out = DataLoader(TensorDataset(grow_flakes(64, options.size, 1)), 32)
    scheduler = DDPMScheduler(num_train_timesteps=200, beta_schedule="squaredcos_cap_v2")
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.to(device)
    model = build_unet(options.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train = accelerator.prepare(model, optimizer, train)
    average = Average(accelerator.unwrap_model(model))
    xm.mark_step()

    running, step, began = torch.zeros((), device=device), 0, time.perf_counter()
    for epoch in range(options.epochs):
        model.train()
        for (flakes,) in train:
            with accelerator.accumulate(model):
                noise = torch.randn_like(flakes)
                timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(flakes),), device=device)
                loss = denoising_loss(model, scheduler, flakes, noise, timesteps)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            running += loss.detach()
            if accelerator.sync_gradients:
                average.update(accelerator.unwrap_model(model))
            step += 1
            if step % options.log_every == 0:
                accelerator.print(f"step {step} loss {running.item() / options.log_every:.4f}")
                running = torch.zeros((), device=device)
        accelerator.print(f"epoch {epoch}: held out {validate(average.model, scheduler, held_out, device):.4f}")
    accelerator.print(f"{step} batches in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
