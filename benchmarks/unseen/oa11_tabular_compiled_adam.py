"""House price regression on mixed tabular features; model and optimizer step compiled."""
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Hyper:
    rows: int = 12800
    numeric: int = 12
    cards: tuple = (8, 20, 50)
    batch: int = 128
    epochs: int = 3
    lr: float = 3e-3
    warmup: int = 30
    weight_decay: float = 1e-2


def synth(h, seed):
    g = torch.Generator().manual_seed(seed)
    num = torch.randn(h.rows, h.numeric, generator=g)
    cat = torch.stack([torch.randint(0, c, (h.rows,), generator=g) for c in h.cards], 1)
    y = num[:, 0] * num[:, 1] + torch.sin(cat[:, 1].float()) + 0.3 * num[:, 2:5].sum(1)
    return num, cat, y + 0.1 * torch.randn(h.rows, generator=g)


class ResBlock(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.down(F.silu(self.up(self.norm(x)))))


class TabNet(nn.Module):
    def __init__(self, h, d=48, blocks=3):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(c, 8) for c in h.cards])
        self.inp = nn.Linear(h.numeric + 8 * len(h.cards), d)
        self.blocks = nn.Sequential(*[ResBlock(d, 0.1) for _ in range(blocks)])
        self.out = nn.Linear(d, 1)

    def forward(self, num, cat):
        e = [emb(cat[:, i]) for i, emb in enumerate(self.emb)]
        return self.out(self.blocks(self.inp(torch.cat([num, *e], 1)))).squeeze(-1)


class WarmupCosine:
    def __init__(self, opt, h, total):
        self.opt, self.h, self.total, self.n = opt, h, total, 0

    def step(self):
        self.n += 1
        if self.n < self.h.warmup:
            scale = self.n / self.h.warmup
        else:
            scale = 0.5 * (1 + math.cos(math.pi * (self.n - self.h.warmup) / (self.total - self.h.warmup)))
        for group in self.opt.param_groups:
            group["lr"] = self.h.lr * scale


def iterate(data, batch, shuffle=True):
    n = len(data[0])
    order = torch.randperm(n) if shuffle else torch.arange(n)
    for i in range(0, n - batch + 1, batch):
        idx = order[i:i + batch]
        yield tuple(t[idx] for t in data)


@torch.no_grad()
def rmse(model, data, batch):
    model.eval()
    err = [F.mse_loss(model(num, cat), y) for num, cat, y in iterate(data, batch, shuffle=False)]
    model.train()
    return torch.stack(err).mean().sqrt().item()


def main():
    torch.manual_seed(0)
    h = Hyper()
    data = synth(h, 1)
    cut = int(0.9 * h.rows)
    train, val = [t[:cut] for t in data], [t[cut:] for t in data]
    net = TabNet(h)
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=h.lr, weight_decay=h.weight_decay)
    sched = WarmupCosine(opt, h, h.epochs * (cut // h.batch))

    @torch.compile(backend="aot_eager")
    def optimizer_step():
        opt.step()

    for epoch in range(h.epochs):
        t0, total, k = time.time(), 0.0, 0
        for num, cat, y in iterate(train, h.batch):
            loss = F.smooth_l1_loss(model(num, cat), y)
            loss.backward()
            optimizer_step()
            opt.zero_grad()
            sched.step()
            total += loss.detach()
            k += 1
        print(f"epoch {epoch} loss {total / k:.4f} val rmse {rmse(model, val, h.batch):.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
