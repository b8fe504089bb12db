"""Denoising diffusion on synthetic one-dimensional ECG-like traces, PyTorch/XLA."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

LENGTH, BATCH, STEPS, T = 64, 32, 200, 16


def make_traces(n, generator):
    """Beats of random period and phase with a sharp peak and a slow wave."""
    t = torch.linspace(0, 1, LENGTH)[None]
    freq = 2 + 2 * torch.rand(n, 1, generator=generator)
    phase = torch.rand(n, 1, generator=generator)
    cycle = (t * freq + phase) % 1.0
    peak = torch.exp(-((cycle - 0.5) / 0.05) ** 2)
    wave = 0.3 * torch.exp(-((cycle - 0.8) / 0.1) ** 2)
    return 2 * (peak + wave) - 0.5 + 0.02 * torch.randn(n, LENGTH, generator=generator)


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.time = nn.Linear(width, width)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x, emb):
        h = self.norm(self.conv(x)) + self.time(emb)[:, :, None]
        return x + F.silu(h)


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.inp = nn.Conv1d(1, width, 3, padding=1)
        self.emb = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.blocks = nn.ModuleList(Block(width, d) for d in (1, 4))
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x, t):
        half = self.width // 2
        freqs = torch.exp(-math.log(1000.0) * torch.arange(half, device=x.device) / half)
        angle = t[:, None].float() * freqs[None]
        emb = self.emb(torch.cat([angle.sin(), angle.cos()], 1))
        h = self.inp(x[:, None])
        for block in self.blocks:
            h = block(h, emb)
        return self.out(h)[:, 0]


class Ema:
    """Shadow copy of the weights, used for sampling."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].lerp_(value.detach(), 1 - self.decay)

    def copy_to(self, model):
        model.load_state_dict(self.shadow)


class Diffusion:
    def __init__(self, device):
        beta = torch.linspace(1e-3, 0.4, T)
        alpha_bar = torch.cumprod(1 - beta, 0)
        self.beta = beta.to(device)
        self.alpha_bar = alpha_bar.to(device)
        self.device = device

    def loss(self, model, x0):
        t = torch.randint(0, T, (x0.shape[0],), device=self.device)
        noise = torch.randn_like(x0)
        ab = self.alpha_bar[t][:, None]
        return F.mse_loss(model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, LENGTH, device=self.device)
        for step in reversed(range(T)):
            t = torch.full((n,), step, device=self.device)
            beta, ab = self.beta[step], self.alpha_bar[step]
            x = (x - beta / (1 - ab).sqrt() * model(x, t)) / (1 - beta).sqrt()
            keep = (t > 0).float()[:, None]
            x = x + keep * beta.sqrt() * torch.randn_like(x)
            torch_xla.sync()
        return x


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    data = make_traces(2048, torch.Generator().manual_seed(1)).to(device)
    model = Denoiser().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    diffusion, ema = Diffusion(device), Ema(model, 0.98)
    torch_xla.sync()

    running = torch.zeros((), device=device)
    for step in range(STEPS):
        rows = torch.randint(0, len(data), (BATCH,), device=device)
        loss = diffusion.loss(model, data[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        ema.update(model)
        torch_xla.sync()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {running.item() / 50:.4f}")
            running.zero_()

    ema.copy_to(model)
    samples = diffusion.sample(model, 64).cpu()
    real = data[:512].cpu()
    print(f"samples mean {samples.mean():.3f} std {samples.std():.3f} max {samples.amax(1).mean():.3f}")
    print(f"data    mean {real.mean():.3f} std {real.std():.3f} max {real.amax(1).mean():.3f}")


if __name__ == "__main__":
    main()
