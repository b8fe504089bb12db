"""Two-tower recommendation from implicit feedback with sampled negatives and a hard-negative hinge loss."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

USERS, ITEMS, GENRES = 600, 500, 8
DIM, BATCH, NEGATIVES = 24, 1024, 10
EPOCHS = 2


def make_interactions(rng, per_user=20):
    """Users like two genres each; returns (train pairs, held-out item of every user, genre of every item)."""
    genre = rng.integers(0, GENRES, ITEMS)
    train, held = [], np.empty(USERS, np.int64)
    for user in range(USERS):
        liked = rng.choice(GENRES, 2, replace=False)
        weight = np.where(np.isin(genre, liked), 1.0, 0.05)
        items = rng.choice(ITEMS, per_user, replace=False, p=weight / weight.sum())
        held[user] = items[0]
        train.extend((user, item) for item in items[1:])
    return np.array(train), held, genre


class NegativeSampler:
    """Draws items by popularity to the power 3/4, save those that the user has touched."""

    def __init__(self, pairs, rng):
        self.rng = rng
        popularity = np.bincount(pairs[:, 1], minlength=ITEMS) ** 0.75
        self.chance = popularity / popularity.sum()
        self.seen = {user: set() for user in range(USERS)}
        for user, item in pairs:
            self.seen[int(user)].add(int(item))

    def sample(self, users, k):
        out = np.empty((len(users), k), np.int64)
        for row, user in enumerate(users):
            for col in range(k):
                item = self.rng.choice(ITEMS, p=self.chance)
                while int(item) in self.seen[int(user)]:
                    item = self.rng.choice(ITEMS, p=self.chance)
                out[row, col] = item
        return out


class Tower(nn.Module):
    def __init__(self, rows, extra=0):
        super().__init__()
        self.table = nn.Embedding(rows, DIM)
        nn.init.normal_(self.table.weight, std=0.1)
        self.mlp = nn.Sequential(nn.Linear(DIM + extra, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM))

    def forward(self, ids, features=None):
        x = self.table(ids)
        if features is not None:
            x = torch.cat([x, features], -1)
        return F.normalize(self.mlp(x), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, genre):
        super().__init__()
        self.user = Tower(USERS)
        self.item = Tower(ITEMS, GENRES)
        self.register_buffer("genre", F.one_hot(torch.as_tensor(genre), GENRES).float())

    def items(self, ids):
        return self.item(ids, self.genre[ids])

    def forward(self, users, positives, negatives):
        u = self.user(users)
        pos = (u * self.items(positives)).sum(-1)
        neg = torch.einsum("bd,bkd->bk", u, self.items(negatives))
        return pos, neg


def margin_loss(pos, neg, margin=0.4):
    """Hinge over the violating negatives only: the easy ones would drown the mean."""
    violation = margin - pos.unsqueeze(1) + neg
    hard = violation[violation > 0]
    return hard.mean() + 0.01 * (pos.mean() ** 2)


@torch.no_grad()
def hit_rate(model, pairs, held, device, k=20):
    scores = model.user(torch.arange(USERS, device=device)) @ model.items(torch.arange(ITEMS, device=device)).T
    seen = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    seen[pairs[:, 0], pairs[:, 1]] = True
    scores = scores.masked_fill(seen.to(device), float("-inf"))
    top = scores.topk(k, dim=1).indices
    hits = (top == torch.as_tensor(held, device=device).unsqueeze(1)).any(1).float().mean()
    return hits.item()  # once per epoch


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    device = torch.device("xla")
    pairs, held, genre = make_interactions(rng)
    sampler = NegativeSampler(pairs, rng)
    model = TwoTower(genre).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

    for epoch in range(EPOCHS):
        start = time.time()
        order = rng.permutation(len(pairs))
        steps = len(order) // BATCH
        total = torch.zeros((), device=device)
        for step in range(steps):
            chosen = pairs[order[step * BATCH:(step + 1) * BATCH]]
            users = torch.from_numpy(chosen[:, 0]).to(device)
            positives = torch.from_numpy(chosen[:, 1]).to(device)
            negatives = torch.from_numpy(sampler.sample(chosen[:, 0], NEGATIVES)).to(device)
            pos, neg = model(users, positives, negatives)
            loss = margin_loss(pos, neg)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}, "
              f"hit@20 {hit_rate(model, pairs, held, device):.3f}, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
