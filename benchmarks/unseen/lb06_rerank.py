"""Cross-encoder re-ranker: query + passage -> relevance, listwise training.

Synthetic retrieval log: each query has one relevant passage that shares rare
terms with it and seven distractors. Passages are short notes or long articles,
so the lists are kept in two length buckets.
"""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, QUERY_LEN, LIST = 600, 8, 8
BUCKETS = (32, 72)
DIM, HEADS = 64, 4
PAD, SEP = 0, 1


def make_log(n_queries, seed):
    """Returns, per bucket, padded token ids (q, LIST, bucket) and the index of the relevant passage."""
    rng = np.random.default_rng(seed)
    rows = {b: [] for b in BUCKETS}
    gold = {b: [] for b in BUCKETS}
    for _ in range(n_queries):
        query = rng.integers(100, VOCAB, QUERY_LEN)
        longest = rng.integers(12, BUCKETS[-1] - QUERY_LEN - 1)
        bucket = next(b for b in BUCKETS if longest + QUERY_LEN + 1 <= b)
        winner = rng.integers(LIST)
        block = np.full((LIST, bucket), PAD)
        for k in range(LIST):
            size = rng.integers(longest // 2, longest + 1)
            passage = rng.integers(2, VOCAB, size)
            overlap = 5 if k == winner else rng.integers(0, 2)
            where = rng.choice(size, min(overlap, size), replace=False)
            passage[where] = rng.choice(query, len(where), replace=False)
            block[k, :QUERY_LEN], block[k, QUERY_LEN] = query, SEP
            block[k, QUERY_LEN + 1:QUERY_LEN + 1 + size] = passage
        rows[bucket].append(block)
        gold[bucket].append(winner)
    return {b: (torch.from_numpy(np.stack(rows[b])), torch.tensor(gold[b])) for b in BUCKETS}


def batches(log, size, gen=None):
    """Full batches only, buckets interleaved at random."""
    plan = []
    for bucket, (ids, gold) in log.items():
        order = torch.randperm(len(ids), generator=gen) if gen is not None else torch.arange(len(ids))
        plan += [(bucket, part) for part in order.split(size) if len(part) == size]
    mix = torch.randperm(len(plan), generator=gen).tolist() if gen is not None else range(len(plan))
    for i in mix:
        bucket, part = plan[i]
        ids, gold = log[bucket]
        yield ids[part], gold[part]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 3 * DIM), nn.GELU(), nn.Linear(3 * DIM, DIM))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.n2(x))


class CrossEncoder(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(BUCKETS[-1], DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.score = nn.Linear(2 * DIM, 1)
        self.match = nn.Parameter(torch.tensor(0.5))

    def forward(self, ids):
        b, k, t = ids.shape
        ids = ids.flatten(0, 1)
        x = self.tok(ids) + self.pos.weight[:t]
        shared = (ids.unsqueeze(2) == ids[:, :QUERY_LEN].unsqueeze(1)).any(2)
        x = x + self.match * shared.unsqueeze(2)
        keep = ids != PAD
        for block in self.blocks:
            x = block(x, keep[:, None, None, :])
        w = keep.unsqueeze(2).float()
        pooled = torch.cat([x[:, QUERY_LEN], (x * w).sum(1) / w.sum(1)], 1)
        return self.score(pooled).view(b, k)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    train, dev = make_log(160, 1), make_log(64, 2)
    print({b: len(g) for b, (_, g) in train.items()})
    model = CrossEncoder()
    ranker = torch.compile(model, backend="aot_eager", dynamic=False)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    began = time.time()
    for epoch in range(9):
        model.train()
        losses = []
        for ids, gold in batches(train, 8, gen):
            loss = F.cross_entropy(ranker(ids), gold)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
        model.eval()
        rr = []
        with torch.no_grad():
            for ids, gold in batches(dev, 8):
                s = ranker(ids)
                rank = (s > s.gather(1, gold[:, None])).sum(1) + 1
                rr.append(1.0 / rank)
        print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.3f} MRR {torch.cat(rr).mean().item():.3f} "
              f"({time.time() - began:.0f}s)", flush=True)


if __name__ == "__main__":
    main()
