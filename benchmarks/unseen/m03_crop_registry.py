"""Crop type from satellite time series: encoders come from a registry, a dataclass has the settings."""
from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

ENCODERS: dict[str, type] = {}


def register(name):
    def deco(cls):
        ENCODERS[name] = cls
        return cls
    return deco


@dataclass
class Config:
    encoder: str = "temporal_mixer"
    bands: int = 10
    dates: int = 24
    classes: int = 7
    width: int = 48
    depth: int = 4
    layer_drop: float = 0.25
    ema_decay: float = 0.99
    batch_size: int = 32
    steps: int = 150
    eval_every: int = 50
    lr: float = 1e-3
    seed: int = 5
    betas: tuple = field(default=(0.9, 0.98))


class MixerBlock(nn.Module):
    def __init__(self, dates, width):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.time = nn.Linear(dates, dates)
        self.chan = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.time(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.chan(self.n2(x))


@register("temporal_mixer")
class TemporalMixer(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.drop = cfg.layer_drop
        self.proj = nn.Linear(cfg.bands, cfg.width)
        self.pos = nn.Parameter(torch.zeros(1, cfg.dates, cfg.width))
        self.blocks = nn.ModuleList(MixerBlock(cfg.dates, cfg.width) for _ in range(cfg.depth))
        self.out_dim = cfg.width

    def forward(self, x):
        h = self.proj(x) + self.pos
        for block in self.blocks:
            if self.training and self.drop > 0:
                keep = (torch.rand(len(h), 1, 1, device=h.device) >= self.drop).to(h.dtype)
                h = h + keep * (block(h) - h)
            else:
                h = block(h)
        return h.mean(1)


@register("mlp")
class FlatMLP(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(cfg.bands * cfg.dates, cfg.width), nn.ReLU())
        self.out_dim = cfg.width

    def forward(self, x):
        return self.net(x)


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = ENCODERS[cfg.encoder](cfg)
        self.head = nn.Linear(self.encoder.out_dim, cfg.classes)

    def forward(self, x):
        return self.head(self.encoder(x))


class Ema:
    def __init__(self, model, decay):
        self.decay, self.n = decay, 0
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, 1 - (self.n + 1.5) ** -0.75)
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(d).add_(v, alpha=1 - d)


def make_parcels(cfg, n, seed):
    g = np.random.default_rng(seed)
    y = g.integers(0, cfg.classes, n)
    doy = np.linspace(0, 1, cfg.dates)
    peak = 0.2 + 0.1 * y[:, None]
    ndvi = np.exp(-((doy[None] - peak) ** 2) / 0.02)
    gain = g.normal(1, 0.2, (n, 1, cfg.bands))
    x = ndvi[:, :, None] * gain + 0.3 * g.normal(size=(n, cfg.dates, cfg.bands))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def minority_weight(labels, classes):
    counts = F.one_hot(labels, classes).float().sum(0)
    return (counts.sum() / (counts + 1.0)).sqrt()


@torch.no_grad()
def evaluate(model, x, y, batch=256):
    model.eval()
    hits = torch.zeros((), device=x.device)
    for i in range(0, len(x), batch):
        hits += (model(x[i:i + batch]).argmax(1) == y[i:i + batch]).sum()
        xm.mark_step()
    model.train()
    return hits.item() / len(x)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    dev = torch.device("xla")
    x, y = make_parcels(cfg, 1024, 1)
    xv, yv = (t.to(dev) for t in make_parcels(cfg, 256, 2))
    model = Classifier(cfg).to(dev)
    ema = Ema(model, cfg.ema_decay)
    xm.mark_step()
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=cfg.betas)
    start = time.time()
    for step in range(1, cfg.steps + 1):
        pick = torch.randint(0, len(x), (cfg.batch_size,))
        xb, yb = x[pick].to(dev), y[pick].to(dev)
        loss = F.cross_entropy(model(xb), yb, weight=minority_weight(yb, cfg.classes))
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        xm.mark_step()
        if step % cfg.eval_every == 0:
            print(f"step {step} loss {loss.item():.3f} val {evaluate(model, xv, yv):.3f} {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
