"""Multi-task regression over molecular fingerprints: one trunk, one head per assay."""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ASSAYS = ["logp", "solubility", "herg", "ames", "bbb", "cyp2d6", "cyp3a4", "clearance",
          "half_life", "ppb", "vdss", "caco2", "dili", "ld50"]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm(x)
        h = self.down(F.gelu(self.up(h)))
        return x + F.dropout(h, 0.1, self.training)


class AssayNet(nn.Module):
    def __init__(self, bits=256, width=64, depth=6):
        super().__init__()
        self.embed = nn.Linear(bits, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.heads = nn.ModuleDict({a: nn.Linear(width, 1) for a in ASSAYS})

    def forward(self, bits, assay):
        h = self.embed(bits)
        for block in self.blocks:
            h = block(h)
        return self.heads[assay](h).squeeze(-1)


class AssaySampler:
    """Draws (assay, batch); assays with more rows are drawn more often."""

    def __init__(self, bits=256, batch=128, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.batch, self.rng = batch, random.Random(seed)
        self.rows = {a: 200 + 40 * i for i, a in enumerate(ASSAYS)}
        self.data = {}
        for a, n in self.rows.items():
            x = (torch.rand(n, bits, generator=g) < 0.1).float()
            w = torch.randn(bits, generator=g) * 0.3
            self.data[a] = x, x @ w + 0.1 * torch.randn(n, generator=g)

    def draw(self):
        assay = self.rng.choices(ASSAYS, weights=[n ** 0.5 for n in self.rows.values()])[0]
        x, y = self.data[assay]
        idx = torch.randint(0, len(y), (self.batch,))
        return assay, x[idx], y[idx]


def train(model, sampler, steps=200):
    step_fn = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 50)
    seen = {a: [0, 0.0] for a in ASSAYS}
    start = time.time()
    for step in range(1, steps + 1):
        assay, x, y = sampler.draw()
        loss = F.huber_loss(step_fn(x, assay), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        seen[assay][0] += 1
        seen[assay][1] += loss.item()
        if step % 100 == 0:
            worst = max(ASSAYS, key=lambda a: seen[a][1] / max(1, seen[a][0]))
            print(f"step {step} worst {worst} {time.time() - start:.1f}s", flush=True)
    return seen


@torch.no_grad()
def report(model, sampler):
    model.eval()
    for assay in ASSAYS[:4]:
        x, y = sampler.data[assay]
        r = torch.corrcoef(torch.stack([model(x, assay), y]))[0, 1].item()
        print(f"{assay:12s} r {r:.3f}")


def main():
    torch.manual_seed(0)
    sampler = AssaySampler()
    model = AssayNet()
    train(model, sampler)
    report(model, sampler)


if __name__ == "__main__":
    main()
