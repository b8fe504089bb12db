"""Next-item prediction for grocery sessions (SASRec-like), length-bucketed."""
import random
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F

CATALOGUE = 400
BUCKETS = (8, 16, 24, 32)
BATCH = 32
PAD = 0


def make_sessions(n, seed):
    rng = random.Random(seed)
    sessions = []
    for _ in range(n):
        aisle = rng.randrange(20)
        length = rng.randint(4, 32)
        sessions.append([1 + (aisle * 19 + rng.randrange(25)) % (CATALOGUE - 1) for _ in range(length)])
    return sessions


def bucketed_batches(sessions, rng):
    """Each batch holds sessions of one bucket only and is padded to its edge."""
    shelves = defaultdict(list)
    for s in sessions:
        edge = next(b for b in BUCKETS if b >= len(s))
        shelves[edge].append(s + [PAD] * (edge - len(s)))
    batches = []
    for rows in shelves.values():
        rng.shuffle(rows)
        batches += [torch.tensor(rows[i:i + BATCH]) for i in range(0, len(rows) - BATCH + 1, BATCH)]
    rng.shuffle(batches)
    return batches


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_m = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm_m(x))


class Pantry(nn.Module):
    def __init__(self, width=32, heads=2, depth=1):
        super().__init__()
        self.items = nn.Embedding(CATALOGUE, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(max(BUCKETS), width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.items(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.items.weight.T


def next_item_loss(model, batch):
    inputs, targets = batch, torch.roll(batch, -1, 1)
    targets = torch.cat([targets[:, :-1], torch.full_like(targets[:, -1:], PAD)], 1)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=PAD)


@torch.no_grad()
def hit_rate(model, batches, k=10):
    hits = total = 0
    for batch in batches:
        torch._dynamo.mark_dynamic(batch, 1)
        scores = model(batch)[:, :-1]
        top = scores.topk(k, -1).indices
        real = batch[:, 1:] != PAD
        found = (top == batch[:, 1:, None]).any(-1)
        hits += int(found[real].sum())
        total += int(real.sum())
    return hits / total


def describe(model):
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    biggest = max(sizes, key=sizes.get)
    print(f"{sum(sizes.values())} parameters, largest {biggest}; norm {float(model.places.detach().norm()):.3f}")


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    train, held = make_sessions(1400, 1), make_sessions(400, 2)
    pantry = Pantry()
    describe(pantry)
    model = torch.compile(pantry)
    optimizer = torch.optim.AdamW(pantry.parameters(), lr=2e-3)
    step = 0
    for epoch in range(10):
        for batch in bucketed_batches(train, rng):
            torch._dynamo.mark_dynamic(batch, 1)
            loss = next_item_loss(model, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.3f}")
    print(f"hit@10 {hit_rate(model, bucketed_batches(held, rng)):.3f}")


if __name__ == "__main__":
    main()
