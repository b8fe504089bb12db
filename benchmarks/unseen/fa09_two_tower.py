"""Two-tower retrieval on synthetic implicit feedback: BPR training, recall and AUC on held-out items (XLA)."""
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

USERS, ITEMS, DIM, BATCH, NEGATIVES = 800, 400, 32, 256, 4


def interactions(seed=0, per_user=16):
    """Users and items have hidden tastes; a user takes the items nearest his own."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(USERS, 6)), rng.normal(size=(ITEMS, 6))
    utility = u @ v.T + rng.gumbel(size=(USERS, ITEMS))
    liked = np.argsort(-utility, 1)[:, :per_user]
    for row in liked:
        rng.shuffle(row)
    users = np.repeat(np.arange(USERS), per_user - 4)
    return np.stack([users, liked[:, 4:].reshape(-1)], 1), liked[:, :4]


class NegativeSampler:
    """Draws items the user has not taken, in proportion to popularity ** 0.75."""

    def __init__(self, pairs, k, seed=1):
        self.rng, self.k = np.random.default_rng(seed), k
        self.seen = defaultdict(list)
        for u, i in pairs:
            self.seen[u].append(i)
        p = np.bincount(pairs[:, 1], minlength=ITEMS) ** 0.75 + 1e-3
        self.p = p / p.sum()

    def __call__(self, users):
        out = np.empty((len(users), self.k), np.int64)
        for r, u in enumerate(users):
            for c in range(self.k):
                item = self.rng.choice(ITEMS, p=self.p)
                while item in self.seen[u]:
                    item = self.rng.choice(ITEMS, p=self.p)
                out[r, c] = item
        return out


class Tower(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, ids):
        e = self.emb(ids)
        return e + self.net(e)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = Tower(USERS, DIM), Tower(ITEMS, DIM)

    def forward(self, u, pos, neg):
        q = self.user(u)
        positive = (q * self.item(pos)).sum(-1)
        negative = torch.einsum("bd,bkd->bk", q, self.item(neg))
        return -F.logsigmoid(positive[:, None] - negative).mean()


class RankingMetrics:
    """Collects the scores of held-out items and of all items; computes at the end."""

    def __init__(self, device):
        self.hit_scores = torch.empty(0, 4, device=device)
        self.better = torch.empty(0, 4, device=device)

    def update(self, scores, held):
        s = scores.gather(1, held)
        better = (scores[:, None, :] > s[:, :, None]).float().sum(-1)
        self.hit_scores = torch.cat([self.hit_scores, s])
        self.better = torch.cat([self.better, better])

    def compute(self, k=20):
        better = self.better.cpu().numpy()
        return (better < k).mean(), 1 - better.mean() / (ITEMS - 1), self.hit_scores.mean().item()


@torch.no_grad()
def evaluate(model, held, device, chunk=40):
    metrics = RankingMetrics(device)
    items = model.item(torch.arange(ITEMS, device=device))
    torch_xla.sync()
    for start in range(0, USERS, chunk):
        users = torch.arange(start, start + chunk).to(device)
        truth = torch.from_numpy(held[start:start + chunk]).to(device)
        metrics.update(model.user(users) @ items.T, truth)
        torch_xla.sync()
    return metrics.compute()


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    pairs, held = interactions()
    sampler, rng = NegativeSampler(pairs, NEGATIVES), np.random.default_rng(2)
    model = TwoTower().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
    t0 = time.time()
    for epoch in range(4):
        order = rng.permutation(len(pairs))
        total = torch.zeros((), device=device)
        steps = len(order) // BATCH
        for i in range(steps):
            rows = pairs[order[i * BATCH:(i + 1) * BATCH]]
            neg = sampler(rows[:, 0])
            u, pos, n = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (rows[:, 0], rows[:, 1], neg))
            opt.zero_grad()
            loss = model(u, pos, n)
            loss.backward()
            opt.step()
            total += loss.detach()
            torch_xla.sync()
        recall, auc, mean_score = evaluate(model, held, device)
        print(f"epoch {epoch} loss {total.item() / steps:.4f} recall@20 {recall:.3f} auc {auc:.3f} "
              f"score {mean_score:.2f} {time.time() - t0:.1f} s", flush=True)


if __name__ == "__main__":
    main()
