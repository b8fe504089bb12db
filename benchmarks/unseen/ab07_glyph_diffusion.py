"""Trains a glyph denoiser with diffusers' DDPM scheduler, min-SNR weights and an EMA on XLA."""
import math

import torch_xla
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
from diffusers import DDPMScheduler
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader, TensorDataset

SIDE = 12


def glyphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(
        torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij"))
    angle = torch.rand(n, 1, 1, generator=g) * math.pi
    off = (torch.rand(n, 1, 1, generator=g) - 0.5)
    line = torch.cos(angle) * grid[0] + torch.sin(angle) * grid[1] - off
    return torch.exp(-(line * 4) ** 2).mul(2).sub(1).unsqueeze(1)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Linear(SIDE * SIDE, width)
        self.mid = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())
        self.leave = nn.Linear(width, SIDE * SIDE)
        self.register_buffer("freq", torch.exp(-torch.arange(8) * 0.8))

    def forward(self, x, t):
        a = t.float().unsqueeze(1) * self.freq
        e = self.embed(torch.cat([a.sin(), a.cos()], 1))
        h = self.enter(x.flatten(1)) + e
        return self.leave(h + self.mid(h)).view_as(x)


class MinSnr:
    def __init__(self, scheduler, gamma=5.0):
        abar = scheduler.alphas_cumprod
        snr = abar / (1 - abar)
        self.table = (snr.clamp(max=gamma) / snr).tolist()

    def __call__(self, timesteps):
        return torch.tensor([self.table[t] for t in timesteps], device=timesteps.device)


def noised_loss(model, scheduler, clean, weigh):
    t = torch.randint(0, scheduler.config.num_train_timesteps, (clean.shape[0],), device=clean.device)
    noise = torch.randn_like(clean)
    pred = model(scheduler.add_noise(clean, noise, t), t)
    return (weigh(t) * (pred - noise).pow(2).mean((1, 2, 3))).mean()


def grid_loss(model, scheduler, loader, device, levels):
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for (clean,) in loader:
            clean = clean.to(device)
            for level in levels:
                t = torch.full((clean.shape[0],), level, device=device)
                noise = torch.randn_like(clean)
                pred = model(scheduler.add_noise(clean, noise, t), t)
                total += (pred - noise).pow(2).mean()
    return total / (len(loader) * len(levels))


def main():
    torch.manual_seed(0)
    device = torch.device("xla")
    model = Denoiser().to(device)
    scheduler = DDPMScheduler(num_train_timesteps=200)
    ema = EMAModel(model.parameters(), decay=0.99)
    ema.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    epochs = 4
    train = DataLoader(TensorDataset(glyphs(240, 1)), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(TensorDataset(glyphs(48, 2)), batch_size=16)
    rate = get_cosine_schedule_with_warmup(optimizer, 10, epochs * len(train))
    weigh = MinSnr(scheduler)
    for epoch in range(epochs):
        seen = torch.zeros((), device=device)
        for (clean,) in train:
            loss = noised_loss(model, scheduler, clean.to(device), weigh)
            loss.backward()
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
            ema.step(model.parameters())
            seen += loss.detach()
            xm.mark_step()
        ema.store(model.parameters())
        ema.copy_to(model.parameters())
        held = grid_loss(model, scheduler, valid, device, levels=(20, 80, 160))
        print(f"epoch {epoch} train {seen.item() / len(train):.4f} held out {held.item():.4f}")
        ema.restore(model.parameters())


if __name__ == "__main__":
    main()
