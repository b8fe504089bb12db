"""Cross-validated crop-yield regressor: four folds of an FT-style tabular net."""
import gc
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

OPTS = SimpleNamespace(folds=4, steps=60, batch=64, numeric=14, cats=(6, 9, 4), dim=32, lr=2e-3, seed=4)


class FeatureTokens(nn.Module):
    def __init__(self, numeric, cats, dim):
        super().__init__()
        self.w = nn.Parameter(torch.randn(numeric, dim) * 0.1)
        self.b = nn.Parameter(torch.zeros(numeric, dim))
        self.emb = nn.ModuleList(nn.Embedding(c, dim) for c in cats)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, num, cat):
        parts = [self.cls.expand(num.shape[0], -1, -1), num.unsqueeze(-1) * self.w + self.b]
        parts.append(torch.stack([e(cat[:, i]) for i, e in enumerate(self.emb)], 1))
        return torch.cat(parts, 1)


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, h):
        x = self.n1(h)
        k, v = self.kv(x).chunk(2, -1)
        att = torch.softmax(self.q(x) @ k.transpose(1, 2) / k.shape[-1] ** 0.5, -1)
        h = h + self.o(att @ v)
        return h + self.ff(self.n2(h))


class YieldNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens = FeatureTokens(o.numeric, o.cats, o.dim)
        self.mix = Mixer(o.dim)
        self.out = nn.Linear(o.dim, 1)

    def forward(self, num, cat):
        return self.out(self.mix(self.tokens(num, cat))[:, 0]).squeeze(-1)


class Workspace:
    """Owns what a fold needs and gives it back afterwards, so all folds fit in memory."""

    def __init__(self, o):
        self.o = o

    def __enter__(self):
        self.net = YieldNet(self.o)
        self.fast = torch.compile(self.net)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=self.o.lr)
        return self

    def __exit__(self, *exc):
        del self.net, self.fast, self.opt
        torch.compiler.reset()
        gc.collect()
        return False


def make_table(o, n=1280):
    g = torch.Generator().manual_seed(o.seed)
    num = torch.randn(n, o.numeric, generator=g)
    cat = torch.stack([torch.randint(0, c, (n,), generator=g) for c in o.cats], 1)
    y = num[:, 0] * 0.7 - num[:, 3].abs() + 0.2 * cat[:, 1].float() + 0.1 * torch.randn(n, generator=g)
    return num, cat, (y - y.mean()) / y.std()


def fit_fold(o, table, held, gen):
    num, cat, y = table
    rest = torch.tensor([i for i in range(len(y)) if i % o.folds != held])
    test = torch.arange(held, len(y), o.folds)
    with Workspace(o) as ws:
        for _ in range(o.steps):
            i = rest[torch.randint(0, len(rest), (o.batch,), generator=gen)]
            loss = F.mse_loss(ws.fast(num[i], cat[i]), y[i])
            loss.backward()
            ws.opt.step()
            ws.opt.zero_grad()
        ws.net.eval()
        with torch.no_grad():
            return F.mse_loss(ws.net(num[test], cat[test]), y[test]).item()


def main():
    torch.manual_seed(OPTS.seed)
    gen = torch.Generator().manual_seed(OPTS.seed + 1)
    table = make_table(OPTS)
    scores = []
    for fold in range(OPTS.folds):
        scores.append(fit_fold(OPTS, table, fold, gen))
        print(f"fold {fold}: mse {scores[-1]:.3f}")
    print("cv mse", sum(scores) / len(scores))


if __name__ == "__main__":
    main()
