# A denoising diffusion model of 1-d signals (damped chirps), trained and sampled on XLA.
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

LENGTH, STEPS, BATCH, TRAIN_ITERS = 64, 20, 32, 90


def chirps(n, generator):
    t = torch.linspace(0, 1, LENGTH)
    f0 = torch.rand(n, 1, generator=generator) * 4 + 2
    slope = torch.rand(n, 1, generator=generator) * 6
    phase = torch.rand(n, 1, generator=generator) * 2 * math.pi
    return (torch.sin(2 * math.pi * (f0 * t + slope * t * t) + phase) * torch.exp(-2 * t)).unsqueeze(1)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        freqs = torch.exp(-math.log(1000.0) * torch.arange(self.dim // 2, device=t.device) / (self.dim // 2))
        args = t.float()[:, None] * freqs
        return self.mlp(torch.cat([args.sin(), args.cos()], dim=1))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(cin, cout, 5, padding=2), nn.Conv1d(cout, cout, 5, padding=2)
        self.emb = nn.Linear(emb, cout)
        self.norm = nn.GroupNorm(4, cout)
        self.skip = nn.Conv1d(cin, cout, 1)

    def forward(self, x, e):
        h = F.silu(self.c1(x)) + self.emb(e)[:, :, None]
        return self.c2(F.silu(self.norm(h))) + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.temb = TimeEmbedding(32)
        self.down, self.up = ResBlock(1, c, 32), ResBlock(2 * c, c, 32)
        self.head = nn.Conv1d(c, 1, 1)

    def forward(self, x, t):
        e = self.temb(t)
        a = self.down(x, e)
        wide = F.avg_pool1d(a, 9, stride=1, padding=4)
        return self.head(self.up(torch.cat([a, wide], 1), e))


class Diffusion:
    def __init__(self, model, device):
        self.model, self.device = model, device
        betas = torch.linspace(1e-3, 0.34, STEPS)
        self.betas = betas.to(device)
        self.alphas = (1 - betas).to(device)
        self.alphas_bar = torch.cumprod(1 - betas, 0).to(device)

    def loss(self, x0):
        t = torch.randint(0, STEPS, (x0.shape[0],), device=self.device)
        ab = self.alphas_bar[t][:, None, None]
        noise = torch.randn_like(x0)
        return F.mse_loss(self.model(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, n):
        x = torch.randn(n, 1, LENGTH, device=self.device)
        for t in reversed(range(STEPS)):
            steps = torch.full((n,), t, device=self.device)
            eps = self.model(x, steps)
            beta, alpha, ab = self.betas[t], self.alphas[t], self.alphas_bar[t]
            x = (x - beta / (1 - ab).sqrt() * eps) / alpha.sqrt()
            if t > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
            xm.mark_step()
        return x


class EMA:
    def __init__(self, model):
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(0.99, (1 + self.updates) / (10 + self.updates))
        for k, v in model.named_parameters():
            self.shadow[k].mul_(decay).add_(v, alpha=1 - decay)

    def copy_to(self, model):
        model.load_state_dict(self.shadow, strict=False)


torch.manual_seed(0)
device = torch_xla.device()
model = Denoiser().to(device)
diffusion, ema = Diffusion(model, device), EMA(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
generator = torch.Generator().manual_seed(1)
started, running = time.time(), torch.zeros((), device=device)
for it in range(1, TRAIN_ITERS + 1):
    x0 = chirps(BATCH, generator).to(device)
    optimizer.zero_grad()
    loss = diffusion.loss(x0)
    loss.backward()
    optimizer.step()
    ema.update(model)
    running += loss.detach()
    xm.mark_step()
    if it % 30 == 0:
        print(f"iter {it} loss {running.item() / 30:.4f} {time.time() - started:.1f} s", flush=True)
        running = torch.zeros((), device=device)
ema.copy_to(model)
model.eval()
samples = diffusion.sample(64).cpu()
real = chirps(512, generator)
print(f"sampled in {time.time() - started:.1f} s: std {samples.std():.3f} (data {real.std():.3f}), "
      f"early/late energy {samples[..., :16].pow(2).mean() / samples[..., -16:].pow(2).mean():.2f} "
      f"(data {real[..., :16].pow(2).mean() / real[..., -16:].pow(2).mean():.2f})")
