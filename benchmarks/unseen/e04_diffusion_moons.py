"""A diffusion model of points in the plane: an MLP trained with diffusers' DDPM scheduler, drawn from with DDIM. XLA device."""
import argparse
import logging
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from diffusers import DDIMScheduler, DDPMScheduler
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("moons")


def make_moons(n, seed=0):
    gen = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(n, generator=gen)
    upper = torch.rand(n, generator=gen) < 0.5
    x = torch.where(upper, torch.cos(angle), 1 - torch.cos(angle))
    y = torch.where(upper, torch.sin(angle), 0.5 - torch.sin(angle))
    points = torch.stack([x, y], dim=1) + 0.05 * torch.randn(n, 2, generator=gen)
    return (points - points.mean(0)) / points.std(0)


class Denoiser(nn.Module):
    def __init__(self, hidden=64, bands=8):
        super().__init__()
        self.register_buffer("bands", torch.exp(torch.linspace(0, 5, bands)))
        self.inp = nn.Linear(2 + 2 * bands, hidden)
        self.mid = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(2))
        self.out = nn.Linear(hidden, 2)

    def forward(self, points, t):
        phase = (t.float() / 100).reshape(-1, 1) * self.bands
        code = torch.cat([phase.sin(), phase.cos()], dim=1).expand(points.shape[0], -1)
        h = F.silu(self.inp(torch.cat([points, code], dim=1)))
        for layer in self.mid:
            h = h + F.silu(layer(h))
        return self.out(h)


class Ema:
    """A running mean of the weights, kept on the device."""

    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            s.mul_(self.decay).add_(p.detach(), alpha=1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            p.copy_(s)


def train(model, ema, loader, device, epochs):
    scheduler = DDPMScheduler(num_train_timesteps=100)
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        for (points,) in loader:
            points = points.to(device)
            noise = torch.randn_like(points)
            t = torch.randint(0, scheduler.config.num_train_timesteps, (points.shape[0],), device=device)
            predicted = model(scheduler.add_noise(points, noise, t), t)
            loss = F.mse_loss(predicted, noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
            total += loss.detach()
            torch_xla.sync()
        log.info("epoch %d, loss %.4f", epoch, total.item() / len(loader))


@torch.no_grad()
def draw(model, device, count, steps):
    scheduler = DDIMScheduler(num_train_timesteps=100)
    scheduler.set_timesteps(steps, device=device)
    sample = torch.randn(count, 2, device=device)
    for t in scheduler.timesteps:
        noise = model(sample, t)
        sample = scheduler.step(noise, t, sample).prev_sample
        torch_xla.sync()
    return sample.cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sample-steps", type=int, default=25)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    device = torch_xla.device()

    loader = DataLoader(TensorDataset(make_moons(args.points)), batch_size=args.batch_size, shuffle=True)
    model = Denoiser().to(device)
    ema = Ema(model)
    train(model, ema, loader, device, args.epochs)
    ema.copy_to(model)
    model.eval()
    for sheet in range(2):
        points = draw(model, device, 512, args.sample_steps)
        log.info("sheet %d: mean %s, deviation %s", sheet, points.mean(0).tolist(), points.std(0).tolist())


if __name__ == "__main__":
    main()
