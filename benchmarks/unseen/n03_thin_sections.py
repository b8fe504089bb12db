"""Denoising diffusion for textures of rock thin sections (12x12 grey tiles): a UNet2DModel of diffusers on an XLA device."""
import math
import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    tiles: int = 64
    side: int = 12
    batch: int = 16
    epochs: int = 2
    lr: float = 2e-3
    train_timesteps: int = 200
    sample_steps: int = 4
    samples: int = 8
    seed: int = 3


def grain_tile(rng, side):
    """Voronoi grains with a shade each, plus some twinning stripes in one of them."""
    centres = rng.uniform(0, side, size=(rng.integers(3, 7), 2))
    ys, xs = np.mgrid[0:side, 0:side]
    distance = (ys[..., None] - centres[:, 0]) ** 2 + (xs[..., None] - centres[:, 1]) ** 2
    owner = distance.argmin(-1)
    shade = rng.uniform(-0.8, 0.8, size=len(centres))
    tile = shade[owner]
    stripes = np.sin((xs * math.cos(0.6) + ys * math.sin(0.6)) * 1.5) * 0.2
    tile[owner == 0] += stripes[owner == 0]
    return np.clip(tile + rng.normal(0, 0.03, size=tile.shape), -1, 1)


def make_loader(settings):
    rng = np.random.default_rng(settings.seed)
    tiles = np.stack([grain_tile(rng, settings.side) for _ in range(settings.tiles)]).astype("float32")
    return DataLoader(TensorDataset(torch.from_numpy(tiles)[:, None]), batch_size=settings.batch, shuffle=True,
                      drop_last=True)


def make_model(settings):
    return UNet2DModel(sample_size=settings.side, in_channels=1, out_channels=1, layers_per_block=1,
                       block_out_channels=(8, 16), norm_num_groups=4,
                       down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))


class NoiseLevelLedger:
    """How good the model is on each tenth of the noise schedule."""

    def __init__(self, timesteps, sections=10):
        self.width = timesteps // sections
        self.losses = defaultdict(list)

    def record(self, timesteps, per_tile):
        section = timesteps // self.width
        for s in section.unique():
            self.losses[int(s)].append(per_tile[section == s].mean())

    def summary(self):
        return {s: round(torch.stack(v).mean().item(), 3) for s, v in sorted(self.losses.items())}


def train(model, loader, scheduler, device, settings):
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=1e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs * len(loader))
    ledger = NoiseLevelLedger(settings.train_timesteps)
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.to(device)
    model.train()
    for epoch in range(settings.epochs):
        total = torch.zeros((), device=device)
        for (tiles,) in loader:
            clean = tiles.to(device)
            noise = torch.randn_like(clean)
            t = torch.randint(0, settings.train_timesteps, (len(clean),), device=device)
            noisy = scheduler.add_noise(clean, noise, t)
            per_tile = F.mse_loss(model(noisy, t).sample, noise, reduction="none").mean(dim=(1, 2, 3))
            loss = per_tile.mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad(set_to_none=True)
            ledger.record(t, per_tile.detach())
            total += loss.detach()
            xm.mark_step()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}, rate {rate.get_last_lr()[0]:.2e}", flush=True)
    return ledger


@torch.no_grad()
def sample(model, scheduler, device, settings):
    model.eval()
    scheduler.set_timesteps(settings.sample_steps)
    x = torch.randn(settings.samples, 1, settings.side, settings.side, device=device)
    for t in scheduler.timesteps.tolist():
        when = torch.full((settings.samples,), t, device=device)
        x = scheduler.step(model(x, when).sample, t, x).prev_sample
    return x.clamp(-1, 1).cpu()


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    device = xm.xla_device()
    loader = make_loader(settings)
    model = make_model(settings).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(loader)} batches an epoch")

    noise_schedule = dict(num_train_timesteps=settings.train_timesteps, beta_schedule="squaredcos_cap_v2")
    started = time.time()
    ledger = train(model, loader, DDPMScheduler(**noise_schedule), device, settings)
    print(f"trained in {time.time() - started:.1f} s; loss by noise level {ledger.summary()}")

    started = time.time()
    tiles = sample(model, DDIMScheduler(**noise_schedule), device, settings)
    print(f"{len(tiles)} tiles in {time.time() - started:.1f} s, grey {tiles.mean():.3f} +- {tiles.std():.3f}")


if __name__ == "__main__":
    main()
