import math
import random
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

BUCKETS = (8, 16, 24)
VOCAB, INTENTS = 200, 6


def utterances(n, rng):
    rows = []
    for _ in range(n):
        intent = rng.randrange(INTENTS)
        length = rng.randint(3, BUCKETS[-1])
        words = [rng.randrange(1, VOCAB) for _ in range(length)]
        for i in rng.sample(range(length), 2):
            words[i] = 1 + intent * 9 + rng.randrange(9)
        rows.append((words, intent))
    return rows


class BucketSampler:
    def __init__(self, rows, size, rng):
        self.size, self.rng = size, rng
        self.groups = defaultdict(list)
        for words, intent in rows:
            width = next(b for b in BUCKETS if len(words) <= b)
            self.groups[width].append((words + [0] * (width - len(words)), intent))

    def __iter__(self):
        batches = []
        for width, rows in self.groups.items():
            self.rng.shuffle(rows)
            batches += [rows[i:i + self.size] for i in range(0, len(rows) - self.size + 1, self.size)]
        self.rng.shuffle(batches)
        for rows in batches:
            yield torch.tensor([w for w, _ in rows]), torch.tensor([y for _, y in rows])


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        n, t, d = x.shape
        q, k, v = self.qkv(self.a(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = x + self.proj(att.transpose(1, 2).reshape(n, t, d))
        return x + self.ff(self.b(x))


class IntentModel(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.place = nn.Parameter(torch.randn(BUCKETS[-1], dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, INTENTS)

    def forward(self, tokens):
        mask = tokens != 0
        x = self.words(tokens) + self.place[:tokens.size(1)]
        for layer in self.layers:
            x = layer(x, mask)
        keep = mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(1) / keep.sum(1))


def learning_rate(step, total, peak=3e-3, warm=40):
    return peak * min(1.0, step / warm) * 0.5 * (1 + math.cos(math.pi * step / total))


def score(model, sampler):
    model.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for tokens, y in sampler:
            right = right + (model(tokens).argmax(1) == y).sum()
            seen += len(y)
    model.train()
    return int(right) / seen


def main(epochs=12, size=32):
    rng = random.Random(0)
    torch.manual_seed(0)
    train = BucketSampler(utterances(2400, rng), size, rng)
    test = BucketSampler(utterances(600, rng), size, rng)
    model = IntentModel()
    fast = torch.compile(model, backend="aot_eager", dynamic=False)
    opt = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.01)
    total, step = epochs * sum(1 for _ in train), 0
    for epoch in range(epochs):
        for tokens, y in train:
            step += 1
            for group in opt.param_groups:
                group["lr"] = learning_rate(step, total)
            loss = F.cross_entropy(fast(tokens), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        print(f"epoch {epoch} accuracy {score(fast, test):.3f}")


if __name__ == "__main__":
    main()
