"""Walk-forward backtest of a small attention model that predicts next-day volatility of many assets."""
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Setup:
    assets: int = 24
    days: int = 900
    window: int = 20
    train_days: int = 240
    test_days: int = 60
    epochs: int = 3
    batch: int = 128
    folds: int = 8
    scores: list = field(default_factory=list)


def garch_returns(s: Setup, seed=0):
    g = torch.Generator().manual_seed(seed)
    a, b = 0.10 + 0.1 * torch.rand(s.assets, generator=g), 0.75 * torch.ones(s.assets)
    base = 0.5 + torch.rand(s.assets, generator=g)
    var, out, vol = base.clone(), [], []
    market = torch.randn(s.days, generator=g)
    own = torch.randn(s.days, s.assets, generator=g)
    shock = torch.rand(s.days, s.assets, generator=g) < 0.01
    for d in range(s.days):
        eps = 0.6 * market[d] + 0.8 * own[d]
        r = var.sqrt() * eps
        vol.append(var.sqrt())
        out.append(r)
        var = (1 - a - b) * base + a * r * r * (1 + 4 * shock[d]) + b * var
    return torch.stack(out), torch.stack(vol)


class VolNet(nn.Module):
    """Temporal attention per asset, then attention across the assets."""

    def __init__(self, assets, window, dim=32):
        super().__init__()
        self.inp = nn.Linear(2, dim)
        self.time = nn.Parameter(0.1 * torch.randn(window, dim))
        self.asset = nn.Parameter(0.1 * torch.randn(assets, dim))
        self.score = nn.Linear(dim, 1)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.mix = nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def forward(self, r):                                   # r: batch, window, assets
        x = torch.stack([r, (r * r + 0.05).log()], -1).transpose(1, 2)
        x = F.gelu(self.inp(x) + self.time)
        h = (self.score(x).softmax(2) * x).sum(2) + self.asset
        q, k, v = self.qkv(self.norm1(h)).chunk(3, -1)
        h = h + self.mix(F.scaled_dot_product_attention(q, k, v))
        return self.out(self.norm2(h)).squeeze(-1)          # log variance per asset


class Fold:
    def __init__(self, s, returns, start):
        self.s = s
        self.x = returns.unfold(0, s.window, 1).transpose(1, 2)     # day, window, assets
        self.lo = start
        self.mid = start + s.train_days
        self.y = returns

    def slices(self, days):
        idx = days - self.s.window
        return self.x[idx], self.y[days]

    def train_batches(self):
        days = torch.arange(self.lo + self.s.window, self.mid)
        picks = days[torch.randint(len(days), (len(days) // self.s.batch + 1, self.s.batch))]
        for p in picks:
            yield self.slices(p)

    def test(self):
        return self.slices(torch.arange(self.mid, self.mid + self.s.test_days))


def qlike(log_var, r):
    return (log_var + r * r * (-log_var).exp()).mean()


def fit(s, fold):
    # start every fold from a clean slate, so that nothing leaks from the last one
    torch._dynamo.reset()
    torch.manual_seed(17)
    model = VolNet(s.assets, s.window)
    forward = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2)
    for _ in range(s.epochs * 6):
        for x, y in fold.train_batches():
            opt.zero_grad()
            qlike(forward(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
    return model


def main():
    s = Setup()
    returns, vol = garch_returns(s)
    for k in range(s.folds):
        t0 = time.time()
        fold = Fold(s, returns, k * s.test_days)
        model = fit(s, fold)
        x, y = fold.test()
        with torch.no_grad():
            pred = model(x)
        flat = returns[fold.lo:fold.mid].var(0).log().expand_as(y)
        truth = vol[fold.mid:fold.mid + s.test_days].log() * 2
        corr = torch.corrcoef(torch.stack([pred.flatten(), truth.flatten()]))[0, 1].item()
        s.scores.append((qlike(pred, y).item(), qlike(flat, y).item(), corr))
        print("fold %d qlike %.3f (constant %.3f) corr with true log-variance %.3f" % (k, *s.scores[-1]),
              f"{time.time() - t0:.1f}s", flush=True)
    wins = sum(a < b for a, b, _ in s.scores)
    print(f"better than a constant in {wins} of {s.folds} folds")


if __name__ == "__main__":
    main()
