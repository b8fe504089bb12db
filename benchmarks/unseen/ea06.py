"""Credit default from categorical and numeric columns: entity embeddings + MLP, and permutation importance."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

CARDS = [12, 50, 7, 300, 4, 24, 90, 31]
NUM = 12
N_TRAIN, N_VALID, BATCH = 16384, 2048, 512


def make_table(n, rng, effects, beta):
    cat = np.stack([rng.integers(0, c, n) for c in CARDS], 1)
    num = rng.normal(size=(n, NUM)).astype(np.float32)
    num[:, 1] = np.exp(num[:, 1])
    score = sum(e[cat[:, j]] for j, e in enumerate(effects)) + np.tanh(num) @ beta
    score += 0.8 * num[:, 0] * effects[0][cat[:, 0]]
    y = rng.random(n) < 1 / (1 + np.exp(-(score - 1.0)))
    return torch.from_numpy(cat), torch.from_numpy(num), torch.from_numpy(y.astype(np.float32))


class EntityNet(nn.Module):
    def __init__(self, hidden=384):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, min(16, (c + 3) // 2)) for c in CARDS)
        width = sum(t.embedding_dim for t in self.tables) + NUM
        self.norm = nn.BatchNorm1d(NUM)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, 1))

    def forward(self, cat, num):
        cols = [t(cat[:, j]) for j, t in enumerate(self.tables)]
        return self.mlp(torch.cat(cols + [self.norm(num)], 1)).squeeze(1)


class GradientGuard:
    """Clips to `factor` times the usual norm, and leaves a batch out when its gradient explodes."""

    def __init__(self, params, factor=2.0, explode=50.0):
        self.params = list(params)
        self.factor, self.explode = factor, explode
        self.usual, self.skipped = None, 0

    def ok(self):
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in self.params]))
        value = float(norm)
        if self.usual is not None and value > self.explode * self.usual:
            self.skipped += 1
            return False
        limit = self.factor * (self.usual or value)
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)
        for p in self.params:
            p.grad.mul_(scale)
        self.usual = value if self.usual is None else 0.98 * self.usual + 0.02 * value
        return True


def auc(score, y):
    order = torch.argsort(score)
    rank = torch.empty_like(score).scatter_(0, order, torch.arange(1, len(y) + 1, device=y.device, dtype=score.dtype))
    pos = y.sum()
    return ((rank * y).sum() / pos - (pos + 1) / 2) / (len(y) - pos)


def fit(model, data, valid, device, epochs=2):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    guard = GradientGuard(model.parameters())
    for epoch in range(epochs):
        t = time.time()
        model.train()
        perm = torch.randperm(N_TRAIN)
        loss_sum = torch.zeros((), device=device)
        for k in range(0, N_TRAIN, BATCH):
            cat, num, y = (d[perm[k:k + BATCH]].to(device) for d in data)
            loss = F.binary_cross_entropy_with_logits(model(cat, num), y)
            opt.zero_grad()
            loss.backward()
            if guard.ok():
                xm.optimizer_step(opt)
            loss_sum += loss.detach()
            torch_xla.sync()
        model.eval()
        with torch.no_grad():
            score = auc(model(valid[0], valid[1]), valid[2]).item()
        print(f"epoch {epoch}: loss {loss_sum.item() / (N_TRAIN // BATCH):.4f}, AUC {score:.4f}, "
              f"skipped {guard.skipped}, {time.time() - t:.1f} s")


@torch.no_grad()
def permutation_importance(model, valid, repeats=2):
    model.eval()
    cat, num, y = valid
    base = auc(model(cat, num), y).item()
    table = {}
    for j in range(len(CARDS) + NUM):
        drops = []
        for r in range(repeats):
            perm = torch.randperm(len(y)).to(y.device)
            c, x = cat.clone(), num.clone()
            if j < len(CARDS):
                c[:, j] = cat[perm, j]
            else:
                x[:, j - len(CARDS)] = num[perm, j - len(CARDS)]
            drops.append(base - auc(model(c, x), y).item())
        table[f"cat{j}" if j < len(CARDS) else f"num{j - len(CARDS)}"] = float(np.mean(drops))
    return table


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    effects = [rng.normal(0, s, c) for s, c in zip((.5, .3, .1, .6, .0, .2, .4, .0), CARDS)]
    beta = rng.normal(0, 0.5, NUM) * (rng.random(NUM) < 0.5)
    device = torch_xla.device()
    train_data = make_table(N_TRAIN, rng, effects, beta)
    valid_data = tuple(d.to(device) for d in make_table(N_VALID, rng, effects, beta))
    net = EntityNet().to(device)
    fit(net, train_data, valid_data, device)
    t = time.time()
    importance = permutation_importance(net, valid_data)
    for name, v in sorted(importance.items(), key=lambda kv: -kv[1])[:8]:
        print(f"  {name:6s} {v:+.4f}")
    print(f"importance took {time.time() - t:.1f} s")
