"""Learning to rank search results of different lengths, compiled with inductor; lists are bucketed by length."""
import random
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES, EPOCHS, BATCH = 32, 8, 16
BUCKETS = (16, 32)


def queries(n, seed):
    """(features, relevance) of each query; between 5 and 32 documents."""
    rng = np.random.default_rng(seed)
    w = np.random.default_rng(0).normal(size=(FEATURES, 2)) / FEATURES ** 0.5
    out = []
    for _ in range(n):
        docs = int(rng.integers(5, 33))
        x = rng.normal(size=(docs, FEATURES)).astype(np.float32)
        s = x @ w
        rel = np.clip(np.round(1.2 * s[:, 0] + s[:, 1] ** 2 + 0.3 * rng.normal(size=docs)), 0, 4)
        out.append((torch.from_numpy(x), torch.from_numpy(rel.astype(np.float32))))
    return out


def bucketed(data, shuffle, rng):
    """Batches of queries padded to the size of their bucket; incomplete batches are filled with empty queries."""
    groups = defaultdict(list)
    for x, rel in data:
        size = next(b for b in BUCKETS if len(x) <= b)
        groups[size].append((x, rel))
    batches = []
    for size, items in groups.items():
        if shuffle:
            rng.shuffle(items)
        for i in range(0, len(items), BATCH):
            xs = torch.zeros(BATCH, size, FEATURES)
            rels = torch.zeros(BATCH, size)
            mask = torch.zeros(BATCH, size, dtype=torch.bool)
            for j, (x, rel) in enumerate(items[i:i + BATCH]):
                xs[j, :len(x)], rels[j, :len(x)], mask[j, :len(x)] = x, rel, True
            batches.append((xs, rels, mask))
    if shuffle:
        rng.shuffle(batches)
    return batches


class Ranker(nn.Module):
    """Scores each document with a look at the others of the list."""

    def __init__(self, width=64):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x, mask):
        h = self.inner(x)
        keep = mask.clone()
        keep[:, 0] = True
        a, _ = self.attention(h, h, h, key_padding_mask=~keep, need_weights=False)
        return self.out(h + a).squeeze(-1).masked_fill(~mask, -30.0)


def lambda_loss(scores, rel, mask):
    """Pairwise logistic loss, weighed by the difference of gains."""
    gap = scores[:, :, None] - scores[:, None]
    gain = 2 ** rel[:, :, None] - 2 ** rel[:, None]
    pair = (gain > 0) & mask[:, :, None] & mask[:, None]
    weight = gain * pair
    return (F.softplus(-gap) * weight).sum() / weight.sum().clamp_min(1)


def ndcg(scores, rel, mask, k=10):
    order = scores.argsort(1, descending=True)[:, :k]
    gain = (2 ** rel - 1) * mask
    discount = 1 / torch.log2(torch.arange(k) + 2.0)
    best = (gain.sort(1, descending=True).values[:, :k] * discount).sum(1)
    got = (gain.gather(1, order) * discount).sum(1)
    some = best > 0
    return got[some] / best[some]


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    train, test = queries(900, 1), queries(200, 2)
    model = Ranker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.compile(dynamic=False)
    def loss_of(x, rel, mask):
        return lambda_loss(model(x, mask), rel, mask)

    @torch.compile(dynamic=False)
    def score(x, mask):
        return model(x, mask)

    for epoch in range(EPOCHS):
        model.train()
        total, n = 0.0, 0
        for x, rel, mask in bucketed(train, True, rng):
            loss = loss_of(x, rel, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, n = total + loss.detach(), n + 1
        model.eval()
        with torch.no_grad():
            each = torch.cat([ndcg(score(x, mask), rel, mask) for x, rel, mask in bucketed(test, False, rng)])
        print(f"epoch {epoch}: loss {float(total) / n:.4f}, NDCG@10 {each.mean().item():.4f}")


if __name__ == "__main__":
    main()
