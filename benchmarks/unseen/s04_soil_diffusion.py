#!/usr/bin/env python
"""Diffusion model of soil moisture tiles (diffusers' UNet and DDIM) on an XLA device, with previews while it trains."""
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    tile: int = 8
    batch: int = 16
    tiles: int = 192
    epochs: int = 2
    lr: float = 2e-2
    preview_steps: int = 10
    ema: float = 0.98
    seed: int = 8


class MoistureTiles(Dataset):
    """Smooth wet and dry patches with a drainage gradient."""

    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        noise = torch.randn(n, 1, size, size, generator=g)
        smooth = F.avg_pool2d(F.pad(noise, (1, 1, 1, 1), mode="circular"), 3, stride=1) * 3
        slope = torch.linspace(-1, 1, size).view(1, 1, size, 1) * torch.rand(n, 1, 1, 1, generator=g)
        self.tiles = torch.tanh(smooth * 0.7 + slope)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        return self.tiles[i]


def make_unet(cfg):
    return UNet2DModel(sample_size=cfg.tile, in_channels=1, out_channels=1, layers_per_block=1,
                       block_out_channels=(8,), norm_num_groups=4, add_attention=False,
                       down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))


class Ema:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p.detach(), 1.0 - self.decay)


class Forecaster:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        self.unet = make_unet(cfg).to(device)
        self.ema = Ema(self.unet, cfg.ema)
        self.noising = DDPMScheduler(num_train_timesteps=200, beta_schedule="squaredcos_cap_v2")
        self.sampler = DDIMScheduler.from_config(self.noising.config)
        self.alphas = self.noising.alphas_cumprod.to(device)
        self.optimizer = torch.optim.SGD(self.unet.parameters(), lr=cfg.lr, momentum=0.9)

    def noised(self, x, noise, t):
        a = self.alphas[t].view(-1, 1, 1, 1)
        return a.sqrt() * x + (1 - a).sqrt() * noise

    def train_step(self, tiles):
        t = torch.randint(0, 200, (len(tiles),), device=self.device)
        noise = torch.randn_like(tiles)
        pred = self.unet(self.noised(tiles, noise, t), t).sample
        loss = F.mse_loss(pred, noise)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
        self.optimizer.step()
        self.ema.update(self.unet)
        return loss.detach()

    @torch.no_grad()
    def preview(self, n=4):
        """Draws tiles from the current weights and returns how far their spread is from the data's."""
        self.unet.eval()
        self.sampler.set_timesteps(self.cfg.preview_steps, device=self.device)
        x = torch.randn(n, 1, self.cfg.tile, self.cfg.tile, device=self.device)
        for t in self.sampler.timesteps:
            eps = self.unet(x, t).sample
            x = self.sampler.step(eps, t, x).prev_sample
        self.unet.train()
        return x.cpu()


def describe(tiles):
    flat = tiles.flatten(1)
    return f"mean {flat.mean():+.3f}, spread {flat.std(dim=1).mean():.3f}, wet {(flat > 0.5).float().mean():.2f}"


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    device = torch_xla.device()
    data = MoistureTiles(cfg.tiles, cfg.tile, cfg.seed)
    loader = DataLoader(data, batch_size=cfg.batch, shuffle=True, drop_last=True)
    model = Forecaster(cfg, device)
    print("data:", describe(data.tiles))

    for epoch in range(cfg.epochs):
        began = time.time()
        running = torch.zeros((), device=device)
        for tiles in loader:
            running += model.train_step(tiles.to(device))
            torch_xla.sync()
        print(f"epoch {epoch}: loss {running.item() / len(loader):.4f} ({time.time() - began:.1f} s)")
        print("  preview:", describe(model.preview()))
    xm.wait_device_ops()


if __name__ == "__main__":
    main()
