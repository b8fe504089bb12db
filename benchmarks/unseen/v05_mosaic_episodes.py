"""Prototypical episodes over Roman mosaic tiles: which workshop cut this tile?

Tiles are periodic textures. Each episode draws a few workshops, a support set and a query set.
"""
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla.core.xla_model as xm

SIDE = 20


class TileBank:
    def __init__(self, workshops, per_workshop, seed):
        self.rng = np.random.default_rng(seed)
        self.workshops, self.per_workshop = workshops, per_workshop
        self.style = self.rng.uniform(0.5, 3.0, (workshops, 3, 2))
        self.tint = self.rng.uniform(0.2, 1.0, (workshops, 3))

    def draw(self, workshop):
        yy, xx = np.mgrid[0:SIDE, 0:SIDE] * (2 * np.pi / SIDE)
        tile = np.empty((3, SIDE, SIDE), np.float32)
        for channel in range(3):
            fy, fx = np.round(self.style[workshop, channel] * 2)
            phase = self.rng.uniform(0, 2 * np.pi)
            tile[channel] = self.tint[workshop, channel] * np.sin(fy * yy + fx * xx + phase)
        return tile + self.rng.normal(0, 0.3, tile.shape).astype(np.float32)

    def episode(self, ways, shots, queries):
        chosen = self.rng.choice(self.workshops, ways, replace=False)
        support = np.stack([self.draw(w) for w in chosen for _ in range(shots)])
        order = self.rng.integers(0, ways, ways * queries)
        query = np.stack([self.draw(chosen[k]) for k in order])
        support_labels = np.repeat(np.arange(ways), shots)
        return tuple(map(torch.from_numpy, (support, support_labels, query, order)))


def wrap_jitter(tiles, quarter=SIDE // 4):
    """The texture is periodic, so a tile shifted around its own edge is as good a tile."""
    return torch.roll(tiles, shifts=quarter * random.randrange(4), dims=3)


class TileEncoder(nn.Module):
    def __init__(self, width=8, embedding=24):
        super().__init__()
        blocks, before = [], 3
        for after in (width, width):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(), nn.AvgPool2d(2)]
            before = after
        self.body = nn.Sequential(*blocks)
        self.project = nn.Linear(before, embedding)

    def forward(self, tiles):
        embedded = F.normalize(self.project(self.body(tiles).mean((2, 3))), dim=-1)
        assert torch.isfinite(embedded).all(), "embedding diverged"
        return embedded


def prototypes(embedded, labels):
    membership = F.one_hot(labels).float()
    return membership.t() @ embedded / membership.sum(0).unsqueeze(1)


class EpisodeLearner:
    def __init__(self, device, ways=5, shots=3, queries=6, scale=10.0):
        self.device, self.ways, self.shots, self.queries = device, ways, shots, queries
        self.encoder = TileEncoder().to(device)
        self.scale = scale
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=2e-3)

    def scores(self, support, support_labels, query):
        centres = prototypes(self.encoder(support), support_labels)
        return -self.scale * (self.encoder(query).unsqueeze(1) - centres).pow(2).sum(-1)

    def to_device(self, episode):
        return [part.to(self.device) for part in episode]

    def fit(self, bank, episodes, report_every=40):
        self.encoder.train()
        loss_sum = torch.zeros((), device=self.device)
        for number in range(1, episodes + 1):
            support, support_labels, query, query_labels = self.to_device(bank.episode(self.ways, self.shots, self.queries))
            support = wrap_jitter(support)
            loss = F.cross_entropy(self.scores(support, support_labels, query), query_labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss_sum += loss.detach()
            xm.mark_step()
            if number % report_every == 0:
                print(f"episode {number:4d} loss {loss_sum.item() / report_every:.3f}", file=sys.stderr)
                loss_sum.zero_()

    @torch.no_grad()
    def judge(self, bank, episodes):
        self.encoder.eval()
        hits = torch.zeros((), device=self.device)
        for _ in range(episodes):
            support, support_labels, query, query_labels = self.to_device(bank.episode(self.ways, self.shots, self.queries))
            hits += (self.scores(support, support_labels, query).argmax(1) == query_labels).float().mean()
            xm.mark_step()
        return hits.item() / episodes


def main():
    random.seed(2)
    torch.manual_seed(2)
    learner = EpisodeLearner(xm.xla_device())
    known, unknown = TileBank(24, 40, seed=4), TileBank(12, 40, seed=9)
    began = time.time()
    learner.fit(known, episodes=100)
    print(f"unseen workshops: {learner.judge(unknown, 30):.3f} right, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
