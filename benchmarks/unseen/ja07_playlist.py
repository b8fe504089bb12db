"""Playlist continuation: matrix factorisation trained with BPR and popularity-aware negatives.

Listeners and tracks have latent tastes; a listener's history is drawn from them.  For each
(listener, played track) pair a track the listener has not played is drawn as the negative.
"""
import random
from itertools import accumulate
from bisect import bisect

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

LISTENERS, TRACKS, DIM = 800, 1500, 16
PLAYS, BATCH, EPOCHS, HARD = 30, 1200, 4, 4


def simulate(rng):
    taste = rng.normal(size=(LISTENERS, 4))
    style = rng.normal(size=(TRACKS, 4))
    fame = rng.gumbel(size=TRACKS) * 0.8
    score = 1.2 * taste @ style.T + fame + rng.gumbel(size=(LISTENERS, TRACKS))
    return np.argsort(-score, axis=1)[:, :PLAYS + 1].copy()


class TripleLoader:
    """Batches of (listener, played, not played x HARD)."""

    def __init__(self, plays, seed):
        self.plays = plays
        self.rng = random.Random(seed)
        counts = np.bincount(plays.ravel(), minlength=TRACKS) + 1.0
        self.weights = (counts ** 0.75).tolist()
        self.pairs = [(u, int(i)) for u in range(LISTENERS) for i in plays[u]]

    def draw_negative(self, listener):
        cumulative = list(accumulate(self.weights))
        while True:
            track = bisect(cumulative, self.rng.random() * cumulative[-1])
            if track not in self.plays[listener]:
                return track

    def __iter__(self):
        self.rng.shuffle(self.pairs)
        for start in range(0, len(self.pairs), BATCH):
            chunk = self.pairs[start:start + BATCH]
            users = torch.tensor([u for u, _ in chunk])
            played = torch.tensor([i for _, i in chunk])
            other = torch.tensor([[self.draw_negative(u) for _ in range(HARD)] for u, _ in chunk])
            yield users, played, other


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(LISTENERS, DIM)
        self.track = nn.Embedding(TRACKS, DIM)
        self.bias = nn.Embedding(TRACKS, 1)
        for table in (self.user, self.track):
            nn.init.normal_(table.weight, std=0.3)
        nn.init.zeros_(self.bias.weight)

    def score(self, users, tracks):
        """users (B,), tracks (B, K) -> (B, K)"""
        u = self.user(users)[:, None]
        return (u * self.track(tracks)).sum(-1) + self.bias(tracks)[..., 0]


def bpr(model, users, played, other):
    good = model.score(users, played[:, None])
    bad = model.score(users, other)
    rank = -F.logsigmoid(good - bad).mean()
    size = model.user(users).pow(2).mean() + model.track(played).pow(2).mean()
    return rank + 0.01 * size


@torch.no_grad()
def hit_rate(model, seen, held_out, k=50):
    """Is the held-out track among the best k of those not in the history?"""
    scores = model.user.weight @ model.track.weight.T + model.bias.weight[:, 0]
    scores = scores.scatter(1, seen, float("-inf"))
    mine = scores.gather(1, held_out[:, None])
    rank = (scores > mine).sum(1)
    return (rank < k).float().mean().item()


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    data = simulate(rng)
    for row in data:
        rng.shuffle(row)
    plays, held_out = data[:, :PLAYS], data[:, PLAYS]
    device = torch_xla.device()
    model = Factors().to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.25)
    loader = TripleLoader(plays, 6)
    seen, target = torch.from_numpy(plays.copy()).to(device), torch.from_numpy(held_out.copy()).to(device)
    print(f"hit rate before training {hit_rate(model, seen, target):.3f}")
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=device)
        for step, batch in enumerate(loader):
            users, played, other = (t.to(device) for t in batch)
            opt.zero_grad()
            loss = bpr(model, users, played, other)
            loss.backward()
            xm.optimizer_step(opt)
            total += loss.detach()
            torch_xla.sync()
        print(f"epoch {epoch}: loss {total.item() / (step + 1):.4f} "
              f"hit rate {hit_rate(model, seen, target):.3f}", flush=True)


if __name__ == "__main__":
    main()
