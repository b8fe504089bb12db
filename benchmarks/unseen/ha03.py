"""Query-document retrieval: a siamese tower over hashed character n-grams, in-batch negatives plus a cross-batch memory."""
import random
import time
import zlib
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset

BUCKETS = 4096
MAX_GRAMS = 256
SYLLABLES = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "s")]


def make_word(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))


def make_pairs(n, seed):
    """A document: words of two topics and noise. Its query: four of the words, one of them misspelt."""
    rng = random.Random(seed)
    topics = [[make_word(rng) for _ in range(30)] for _ in range(60)]
    pairs = []
    for _ in range(n):
        a, b = rng.sample(topics, 2)
        doc = rng.sample(a, 8) + rng.sample(b, 6) + [make_word(rng) for _ in range(4)]
        query = rng.sample(doc[:14], 4)
        w = query[0]
        query[0] = w[:1] + w[2:]
        rng.shuffle(doc)
        pairs.append((" ".join(query), " ".join(doc)))
    return pairs


def char_ngrams(text, lo=3, hi=5):
    for word in text.split():
        padded = f"<{word}>"
        for n in range(lo, hi + 1):
            for i in range(len(padded) - n + 1):
                yield padded[i:i + n]


def featurize(text):
    """The most frequent hashed n-grams of the text, as a fixed number of ids (0 is padding)."""
    counts = Counter(1 + zlib.crc32(gram.encode()) % (BUCKETS - 1) for gram in char_ngrams(text))
    ids = sorted(counts, key=lambda k: (-counts[k], k))[:MAX_GRAMS]
    return torch.tensor(ids + [0] * (MAX_GRAMS - len(ids)))


class PairDataset(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        query, doc = self.pairs[i]
        return featurize(query), featurize(doc)


class Tower(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, dim, padding_idx=0)
        nn.init.normal_(self.table.weight, std=0.05)
        self.proj = nn.Linear(dim, dim)

    def forward(self, ids):
        weight = (ids != 0).float().unsqueeze(-1)
        mean = (self.table(ids) * weight).sum(1) / weight.sum(1).clamp(min=1)
        return F.normalize(self.proj(mean), dim=-1)


class Memory:
    """The document vectors of the last few steps serve as further negatives."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.bank = None

    def push(self, vectors):
        bank = vectors if self.bank is None else torch.cat([vectors, self.bank])
        self.bank = bank[:self.capacity]


def recall_at_10(tower, loader):
    q, d = [], []
    with torch.no_grad():
        for a, b in loader:
            q.append(tower(a))
            d.append(tower(b))
            torch_xla.sync()
        scores = torch.cat(q) @ torch.cat(d).T
        own = scores.diagonal().unsqueeze(1)
        hit = ((scores > own).sum(1) < 10).float().mean()
    return hit.item()


def main(epochs=3, batch=64, capacity=384, temperature=0.1):
    random.seed(0)
    torch.manual_seed(0)
    device = xm.xla_device()
    pairs = make_pairs(2048 + 512, seed=1)
    train = pl.MpDeviceLoader(DataLoader(PairDataset(pairs[:2048]), batch, shuffle=True, drop_last=True), device)
    test = pl.MpDeviceLoader(DataLoader(PairDataset(pairs[2048:]), 128), device)
    tower = Tower().to(device)
    opt = torch.optim.Adam(tower.parameters(), lr=3e-3)
    memory = Memory(capacity)
    labels = torch.arange(batch, device=device)
    for epoch in range(epochs):
        begin, total = time.time(), torch.zeros((), device=device)
        for q_ids, d_ids in train:
            q, d = tower(q_ids), tower(d_ids)
            pool = d if memory.bank is None else torch.cat([d, memory.bank])
            loss = F.cross_entropy(q @ pool.T / temperature, labels)
            opt.zero_grad()
            loss.backward()
            xm.optimizer_step(opt)
            memory.push(d.detach())
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(train):.3f}  recall@10 {recall_at_10(tower, test):.3f}"
              f"  ({time.time() - begin:.1f} s)")


if __name__ == "__main__":
    main()
