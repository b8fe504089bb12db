"""Crop yield regression: k-fold cross validation of a compiled residual MLP."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn

FEATURES = 14


def synth_fields(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=g)
    y = (x[:, 0] * x[:, 1] - 0.7 * x[:, 2].abs() + torch.sin(2 * x[:, 3])
         + 0.1 * torch.randn(n, generator=g))
    return x, y


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class YieldNet(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.enter = nn.Linear(FEATURES, width)
        self.blocks = nn.Sequential(*[ResBlock(width) for _ in range(depth)])
        self.leave = nn.Linear(width, 1)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x))).squeeze(-1)


def folds(n, k, seed=0):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    parts = order.chunk(k)
    for i in range(k):
        yield torch.cat([p for j, p in enumerate(parts) if j != i]), parts[i]


class FoldRun:
    def __init__(self, opt, index):
        torch.manual_seed(opt.seed + index)
        torch.compiler.reset()
        self.opt = opt
        self.net = YieldNet()
        self.model = torch.compile(self.net)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=opt.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.adam, opt.epochs)

    def fit(self, x, y):
        size = self.opt.batch
        for _ in range(self.opt.epochs):
            order = torch.randperm(len(x))
            for i in range(0, len(x) - size + 1, size):
                rows = order[i:i + size]
                loss = nn.functional.huber_loss(self.model(x[rows]), y[rows])
                self.adam.zero_grad()
                loss.backward()
                self.adam.step()
            self.sched.step()
        return loss.item()

    @torch.no_grad()
    def score(self, x, y):
        self.net.eval()
        size = self.opt.batch
        left = sum(((self.model(x[i:i + size]) - y[i:i + size]) ** 2).sum().item()
                   for i in range(0, len(x) - size + 1, size))
        whole = len(x) // size * size
        return 1 - left / ((y[:whole] - y[:whole].mean()) ** 2).sum().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folds", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=5)
    opt = ap.parse_args()
    x, y = synth_fields(800, opt.seed)
    scores = []
    for k, (a, b) in enumerate(folds(len(x), opt.folds)):
        start = time.time()
        run = FoldRun(opt, k)
        loss = run.fit(x[a], y[a])
        scores.append(run.score(x[b], y[b]))
        print(f"fold {k} loss {loss:.4f} r2 {scores[-1]:.3f} {time.time() - start:.1f}s")
    print(json.dumps({"mean": statistics.mean(scores), "sd": statistics.stdev(scores)}))


if __name__ == "__main__":
    main()
