"""Ripeness of cheese wheels from whatever sensors happened to be on that day.

Every reading arrives as a dictionary: ultrasound, colour, ammonia, humidity and mass are
encoded separately and fused by attention.  Batches come from the cellar's message queue,
one shelf at a time, and are merged into the state that the shelf had before.
"""
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTHS = {"ultrasound": 48, "colour": 12, "ammonia": 6, "humidity": 8, "mass": 3}


@dataclass
class Config:
    width: int = 48
    batch: int = 24
    steps: int = 400
    lr: float = 1e-3
    report: int = 100


class Cellar:
    """Simulates shelves; sensors report in the order in which their packets arrive."""

    def __init__(self, cfg, seed=0):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)
        self.random = random.Random(seed)
        self.maps = {k: torch.randn(4, w, generator=self.gen) for k, w in WIDTHS.items()}

    def packet(self, name, latent):
        clean = latent @ self.maps[name]
        return name, torch.tanh(clean) + 0.1 * torch.randn(clean.shape, generator=self.gen)

    def shelf(self):
        latent = torch.randn(self.cfg.batch, 4, generator=self.gen)
        arrivals = sorted(WIDTHS, key=lambda name: self.random.expovariate(1.0 / len(name)))
        reading = dict(self.packet(name, latent) for name in arrivals)
        ripeness = torch.sigmoid(latent.sum(-1)) + 0.1 * torch.sin(3 * latent[:, 0])
        return reading, ripeness


class SensorEncoder(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.LayerNorm(width))

    def forward(self, x):
        return self.body(x)


class FusionBlock(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(x)


class Ripeness(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
        self.encoders = nn.ModuleDict({k: SensorEncoder(w, width) for k, w in WIDTHS.items()})
        self.tags = nn.ParameterDict({k: nn.Parameter(0.02 * torch.randn(width)) for k in WIDTHS})
        self.blocks = nn.ModuleList(FusionBlock(width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, reading):
        tokens = [self.encoders[name](value) + self.tags[name] for name, value in reading.items()]
        h = torch.stack(tokens, 1)
        for block in self.blocks:
            h = block(h)
        return self.out(h.mean(1)).squeeze(-1)


def evaluate(model, shelves):
    with torch.no_grad():
        return sum(F.l1_loss(model(r), y).item() for r, y in shelves) / len(shelves)


def main():
    cfg = Config()
    torch.manual_seed(0)
    cellar = Cellar(cfg)
    held_out = [Cellar(cfg, 0).shelf() for _ in range(4)]
    model = Ripeness(cfg.width)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    began, total = time.time(), torch.zeros(())
    for step in range(1, cfg.steps + 1):
        reading, ripeness = cellar.shelf()
        loss = F.mse_loss(compiled(reading), ripeness)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % cfg.report == 0:
            print(f"step {step}: loss {total.item() / cfg.report:.4f}, held out {evaluate(model, held_out):.4f}, "
                  f"{time.time() - began:.1f} s", flush=True)
            total.zero_()


if __name__ == "__main__":
    main()
