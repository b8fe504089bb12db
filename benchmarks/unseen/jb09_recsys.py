"""Two-tower recommender trained with BPR; served with an exponential average of the weights."""
import copy
import time

import numpy as np
import torch
from torch import nn

USERS, ITEMS, FIELDS, DIM = 1500, 800, 10, 16
BATCH, NEGATIVES, EPOCHS = 512, 4, 4


def synthesize(seed=0):
    """Users like items near them in a hidden space; each item has FIELDS categorical features."""
    rng = np.random.default_rng(seed)
    hidden_users, hidden_items = rng.standard_normal((USERS, 6)), rng.standard_normal((ITEMS, 6))
    taste = hidden_users @ hidden_items.T + 0.5 * rng.gumbel(size=(USERS, ITEMS))
    liked = np.argsort(-taste, 1)[:, :25]
    features = np.stack([np.digitize(hidden_items @ rng.standard_normal(6), np.linspace(-3, 3, 9))
                         for _ in range(FIELDS)], 1)
    for row in liked:
        rng.shuffle(row)
    return liked[:, :20], liked[:, 20:], torch.from_numpy(features)


class Tower(nn.Module):
    def __init__(self, width, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.LayerNorm(hidden), nn.Linear(hidden, DIM))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM)
        self.fields = nn.ModuleList([nn.Embedding(10, 8) for _ in range(FIELDS)])
        self.user_tower = Tower(DIM)
        self.item_tower = Tower(DIM + 8 * FIELDS)

    def items(self, ids, features):
        parts = [field(features[..., i]) for i, field in enumerate(self.fields)]
        return self.item_tower(torch.cat([self.item(ids), *parts], -1))

    def forward(self, users, positive, negative, features):
        u = self.user_tower(self.user(users))[:, None]
        good = (u * self.items(positive, features[positive])[:, None]).sum(-1)
        bad = (u * self.items(negative, features[negative])).sum(-1)
        return -nn.functional.logsigmoid(8 * (good - bad)).mean()


class Ema:
    def __init__(self, model, decay=0.98):
        self.model, self.decay = copy.deepcopy(model), decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


class NegativeSampler:
    """Items which a user has not interacted with."""

    def __init__(self, seen):
        self.seen = torch.from_numpy(seen)
        self.generator = torch.Generator().manual_seed(0)

    def draw(self, users):
        rows = []
        for user in users:
            row = []
            while len(row) < NEGATIVES:
                item = torch.randint(ITEMS, (), generator=self.generator)
                if not (self.seen[user] == item).any():
                    row.append(item)
            rows.append(torch.stack(row))
        return torch.stack(rows)


@torch.no_grad()
def hit_rate(model, features, seen, wanted, k=20):
    users = model.user_tower(model.user.weight)
    scores = users @ model.items(torch.arange(ITEMS), features).T
    scores.scatter_(1, torch.from_numpy(seen), float("-inf"))
    top = scores.topk(k).indices
    return (top[:, :, None] == torch.from_numpy(wanted)[:, None]).any(1).float().mean().item()


def main():
    torch.manual_seed(0)
    seen, wanted, features = synthesize()
    users = torch.arange(USERS).repeat_interleave(seen.shape[1])
    items = torch.from_numpy(seen).flatten()
    model = TwoTower()
    step = torch.compile(model, backend="aot_eager")
    ema, sampler = Ema(model), NegativeSampler(seen)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(EPOCHS):
        began, losses = time.perf_counter(), []
        order = torch.randperm(len(users))
        order = order[:len(order) // BATCH * BATCH]        # whole batches only: one shape
        for rows in order.split(BATCH):
            loss = step(users[rows], items[rows], sampler.draw(users[rows]), features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, hit rate@20 raw "
              f"{hit_rate(model, features, seen, wanted):.3f}, averaged "
              f"{hit_rate(ema.model, features, seen, wanted):.3f}, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
