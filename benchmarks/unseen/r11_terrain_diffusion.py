"""Height maps of imaginary islands: a little DDPM with an average of its weights."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm


class Schedule:
    def __init__(self, steps, device):
        t = torch.arange(steps + 1) / steps
        f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        self.betas = (1 - f[1:] / f[:-1]).clamp(max=0.999).to(device)
        self.alphas = 1 - self.betas
        self.bars = self.alphas.cumprod(0)
        self.steps = steps

    def corrupt(self, x, t, noise):
        a = self.bars[t][:, None, None, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=8, emb=16):
        super().__init__()
        self.emb = emb
        self.time = nn.Sequential(nn.Linear(emb, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)

    def embed(self, t):
        freq = torch.exp(torch.arange(self.emb // 2, device=t.device) * (-math.log(1000.0) / (self.emb // 2)))
        arg = t[:, None].float() * freq
        return torch.cat([arg.sin(), arg.cos()], 1)

    def forward(self, x, t):
        e = self.time(self.embed(t))[:, :, None, None]
        a = F.silu(self.enter(x) + e)
        b = F.silu(self.mid(F.silu(self.down(a) + e)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.leave(torch.cat([a, b], 1))


class WeightAverage:
    """Averaged weights for sampling, beside the model's own on the device."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].lerp_(v.detach(), 1 - self.decay)

    def model(self, like):
        m = copy.deepcopy(like)
        m.load_state_dict(self.shadow)
        return m.eval()


def islands(n, size, gen):
    axis = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    h = torch.zeros(n, size, size)
    for _ in range(4):
        c = torch.rand(n, 2, 1, 1, generator=gen) * 1.4 - 0.7
        w = torch.rand(n, 1, 1, generator=gen) * 12 + 4
        h += torch.exp(-w * ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2))
    return (h.clamp(max=1.5) / 0.75 - 1)[:, None]


@torch.no_grad()
def generate(model, sched, n, size, device):
    x = torch.randn(n, 1, size, size, device=device)
    for i in reversed(range(sched.steps)):
        t = torch.full((n,), i, device=device)
        beta, alpha, bar = sched.betas[i], sched.alphas[i], sched.bars[i]
        eps = model(x, t)
        x = (x - beta / (1 - bar).sqrt() * eps) / alpha.sqrt()
        if i > 0:
            x = x + beta.sqrt() * torch.randn_like(x)
        x = x.clamp(-3, 3)
        torch_xla.sync()
    return x


def train(model, average, sched, data, steps, batch, device):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    track = torch.zeros((), device=device)
    for step in range(1, steps + 1):
        x = data[torch.randint(0, len(data), (batch,))].to(device)
        t = torch.randint(0, sched.steps, (batch,), device=device)
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(sched.corrupt(x, t, noise), t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        track.lerp_(loss.detach(), 0.05)
        average.update(model)
        torch_xla.sync()
        if step % 100 == 0:
            print(f"step {step}  loss {track.item():.4f}", flush=True)


def main():
    torch.manual_seed(5)
    device = torch_xla.device()
    size, T = 16, 16
    data = islands(512, size, torch.Generator().manual_seed(1))
    sched = Schedule(T, device)
    model = Denoiser().to(device)
    average = WeightAverage(model, 0.99)
    torch_xla.sync()
    train(model, average, sched, data, steps=250, batch=8, device=device)
    maps = generate(average.model(model), sched, 8, size, device)
    land = (maps > 0).float().mean().item()
    print(f"share of land {land:.3f}, in the data {(data > 0).float().mean():.3f}")


if __name__ == "__main__":
    main()
