"""VQ-style autoencoder with a Gumbel-softmax bottleneck on synthetic glyph images."""
import math
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
# The growing codebook gives a few specialisations; do not let Dynamo give up on them.
torch._dynamo.config.recompile_limit = 64


class Settings(NamedTuple):
    size: int = 24
    images: int = 1920
    batch: int = 64
    epochs: int = 6
    codes: int = 64
    first_codes: int = 16
    grow_by: int = 8


def draw_glyphs(n, size, generator):
    """Random strokes: lines, rings and crosses with soft edges."""
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    u = torch.rand(n, 6, generator=generator)[:, :, None, None]
    cx, cy = u[:, 0] - 0.5, u[:, 1] - 0.5
    r = torch.sqrt((xx - cx) ** 2 + (yy - cy) ** 2)
    ring = torch.exp(-((r - 0.2 - 0.4 * u[:, 2]) / 0.08) ** 2)
    phi = math.pi * u[:, 3]
    line = torch.exp(-(((xx - cx) * torch.sin(phi) - (yy - cy) * torch.cos(phi)) / 0.08) ** 2)
    cross = torch.exp(-(torch.minimum((xx - cx).abs(), (yy - cy).abs()) / 0.06) ** 2)
    kind = (3 * u[:, 4]).long()
    glyph = torch.where(kind == 0, ring, torch.where(kind == 1, line, cross))
    return glyph[:, None].clamp(0, 1)


class GumbelBottleneck(nn.Module):
    def __init__(self, width, codes, dim):
        super().__init__()
        self.logits = nn.Conv2d(width, codes, 1)
        self.codebook = nn.Parameter(torch.randn(codes, dim) * 0.3)
        self.active = codes          # entries in use, from the left

    def forward(self, h):
        logits = self.logits(h)[:, :self.active]
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        if self.training:
            soft = F.softmax((logits + noise) / 0.7, dim=1)
        else:
            soft = F.one_hot(logits.argmax(1), logits.shape[1]).permute(0, 3, 1, 2).to(h.dtype)
        z = torch.einsum("bchw,cd->bdhw", soft, self.codebook[:self.active])
        logq = F.log_softmax(logits, 1)
        kl = (logq.exp() * (logq + math.log(logits.shape[1]))).sum(1).mean()
        return z, kl


class GlyphVAE(nn.Module):
    def __init__(self, codes, width=32, dim=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.GELU(),
                                     nn.Conv2d(width, width, 4, 2, 1), nn.GELU())
        self.bottleneck = GumbelBottleneck(width, codes, dim)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(dim, width, 4, 2, 1), nn.GELU(),
                                     nn.ConvTranspose2d(width, 1, 4, 2, 1))

    def forward(self, x):
        z, kl = self.bottleneck(self.encoder(x))
        return self.decoder(z), kl


class CodebookGrowth:
    """Starts with a small codebook and opens more entries as training goes on."""

    def __init__(self, module, first, grow_by, every):
        self.module, self.grow_by, self.every = module, grow_by, every
        self.limit = len(module.codebook)
        self.count = 0
        self.module.active = first

    def step(self):
        self.count += 1
        if self.count % self.every == 0:
            self.module.active = min(self.module.active + self.grow_by, self.limit)


def evaluate(model, images, batch):
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for x in images.split(batch):
            recon, _ = model(x)
            total += F.mse_loss(torch.sigmoid(recon), x) * len(x)
    model.train()
    return (total / len(images)).item()


def main(cfg=Settings()):
    gen = torch.Generator().manual_seed(1)
    train = draw_glyphs(cfg.images, cfg.size, gen)
    held = draw_glyphs(256, cfg.size, gen)
    model = GlyphVAE(cfg.codes)
    compiled = torch.compile(model, backend="aot_eager")     # quick to specialise, no C++ builds
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    per_epoch = cfg.images // cfg.batch
    growth = CodebookGrowth(model.bottleneck, cfg.first_codes, cfg.grow_by, per_epoch - 4)
    for epoch in range(cfg.epochs):
        perm = torch.randperm(len(train), generator=gen)
        running = torch.zeros(())
        for i in range(per_epoch):
            x = train[perm[i * cfg.batch:(i + 1) * cfg.batch]]
            recon, kl = compiled(x)
            loss = F.binary_cross_entropy_with_logits(recon, x) + 1e-3 * kl
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            running += loss.detach()
            growth.step()
        print(f"epoch {epoch}: loss {running.item() / per_epoch:.4f} codes {model.bottleneck.active} "
              f"held-out mse {evaluate(compiled, held, cfg.batch):.4f}", flush=True)


if __name__ == "__main__":
    main()
