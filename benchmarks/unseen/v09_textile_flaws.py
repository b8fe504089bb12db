"""Weaving flaws in cloth scans: a small patch transformer with stochastic depth, compiled block by block."""
import math
import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("sound", "missing pick", "float", "slub")
SIDE, PATCH = 32, 4


def weave(kind, rng):
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    cloth = np.sin(yy * rng.uniform(1.4, 1.7)) * np.sin(xx * rng.uniform(1.4, 1.7))
    if kind == 1:
        cloth[rng.integers(4, SIDE - 4)] = 0
    elif kind == 2:
        y, x = rng.integers(2, SIDE - 10, 2)
        cloth[y : y + 8, x : x + 2] = 1
    elif kind == 3:
        y, x = rng.uniform(6, SIDE - 6, 2)
        cloth += 1.5 * np.exp(-((yy - y) ** 2) / 3 - (xx - x) ** 2 / 40)
    return (cloth + rng.normal(0, 0.2, cloth.shape)).astype(np.float32)


class ClothScans(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, len(KINDS), n)
        self.scans = np.stack([weave(kind, rng) for kind in self.kinds])[:, None]

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        return self.scans[i], self.kinds[i]


class StochasticDepth(nn.Module):
    """Drops whole branches, deeper ones more often."""

    def __init__(self, layer, layers, strongest=0.2):
        super().__init__()
        self.layer, self.layers, self.strongest = layer, layers, strongest

    def forward(self, branch):
        if not self.training:
            return branch
        keep = 1.0 - self.strongest * self.layer / self.layers
        mask = torch.rand(branch.shape[0], 1, 1, device=branch.device) < keep
        return branch * mask / keep


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(w // self.heads)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, w))


class Block(nn.Module):
    def __init__(self, width, heads, layer, layers, norm=partial(nn.LayerNorm, eps=1e-6)):
        super().__init__()
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.skip = StochasticDepth(layer, layers)

    def forward(self, x):
        x = x + self.skip(self.attention(self.norm1(x)))
        return x + self.skip(self.mlp(self.norm2(x)))


class ClothTransformer(nn.Module):
    def __init__(self, width=24, heads=2, depth=10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, PATCH, PATCH)
        self.position = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads, layer + 1, depth) for layer in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(KINDS))

    def forward(self, scans):
        x = self.patches(scans).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def run_epoch(model, loader, optimizer, schedule):
    model.train()
    total = 0.0
    for scans, kinds in loader:
        loss = nn.functional.cross_entropy(model(scans), kinds, label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(scans).argmax(1) == kinds).sum().item() for scans, kinds in loader)
    return right / len(loader.dataset)


def main(epochs=2):
    torch.manual_seed(13)
    train = DataLoader(ClothScans(1280, 0), 32, shuffle=True, drop_last=True)
    held_out = DataLoader(ClothScans(256, 1), 32)
    model = ClothTransformer()
    for block in model.blocks:  # one graph for all blocks instead of one for the whole model
        block.compile(backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * len(train))
    for epoch in range(epochs):
        began = time.perf_counter()
        loss = run_epoch(model, train, optimizer, schedule)
        print(f"epoch {epoch}: loss {loss:.3f}, {accuracy(model, held_out):.3f} right, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
