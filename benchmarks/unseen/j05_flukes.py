#!/usr/bin/env python
"""Whale re-identification by the trailing edge of the fluke: triplet loss with hard positives."""
import math
import random
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch_xla import runtime as xr

EDGE = 64


def fluke_edges(individuals, sightings, seed):
    g = torch.Generator().manual_seed(seed)
    knots = torch.randn(individuals, 1, 12, generator=g)
    shape = F.interpolate(knots, EDGE + 16, mode="linear", align_corners=True)
    edges = shape.repeat_interleave(sightings, 0)
    edges = edges + 0.25 * torch.randn(edges.shape, generator=g)
    return edges, torch.arange(individuals).repeat_interleave(sightings)


class IdentitySampler:
    """P individuals with K sightings each."""

    def __init__(self, labels, p, k, seed=0):
        self.by_id = defaultdict(list)
        for i, label in enumerate(labels.tolist()):
            self.by_id[label].append(i)
        self.p, self.k, self.rng = p, k, random.Random(seed)

    def __iter__(self):
        ids = list(self.by_id)
        self.rng.shuffle(ids)
        for lo in range(0, len(ids) - self.p + 1, self.p):
            yield [i for label in ids[lo:lo + self.p] for i in self.rng.sample(self.by_id[label], self.k)]


class EdgeNet(nn.Module):
    def __init__(self, width=24, out=16):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(1, width, 7, padding=3), nn.Conv1d(width, width, 5, padding=2),
                                    nn.Conv1d(width, width, 3, padding=1)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in self.convs])
        self.out = nn.Linear(width, out)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.max_pool1d(F.gelu(norm(conv(x))), 2)
        return F.normalize(self.out(x.mean(-1)), dim=-1)


def jitter(edges):
    """Another crop of the photographed edge for each sighting."""
    start = torch.randint(0, edges.shape[-1] - EDGE + 1, (len(edges), 1, 1), device=edges.device)
    return edges.gather(-1, start + torch.arange(EDGE, device=edges.device))


class HardTriplets(nn.Module):
    def __init__(self, margin=0.3):
        super().__init__()
        self.margin = margin

    def forward(self, features, labels):
        distance = (2 - 2 * features @ features.t()).clamp_min(1e-6).sqrt()
        same = labels[:, None] == labels[None, :]
        farthest = (distance * same).max(1).values
        nearest = distance.masked_fill(same, math.inf).min(1).values
        terms = [max(p - n + self.margin, torch.zeros_like(p)) for p, n in zip(farthest, nearest)]
        return torch.stack(terms).mean()


@torch.inference_mode()
def rank_one(model, edges, labels, device):
    model.eval()
    features = model(edges[..., 8:8 + EDGE].to(device))
    distance = torch.cdist(features, features) + 10 * torch.eye(len(features), device=device)
    hit = labels.to(device)[distance.argmin(1)] == labels.to(device)
    model.train()
    return hit.float().mean().item()


def main():
    random.seed(5)
    torch.manual_seed(5)
    device = torch_xla.device()
    edges, labels = fluke_edges(individuals=48, sightings=6, seed=2)
    held_out = fluke_edges(individuals=20, sightings=4, seed=9)
    sampler = IdentitySampler(labels, p=4, k=2)
    edges_on_device, labels_on_device = edges.to(device), labels.to(device)
    model, criterion = EdgeNet().to(device), HardTriplets()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"{xr.device_type()}: {len(edges)} sightings", flush=True)
    for epoch in range(3):
        running, steps, started = torch.zeros((), device=device), 0, time.time()
        for chosen in sampler:
            index = torch.tensor(chosen).to(device)
            features = model(jitter(edges_on_device[index]))
            loss = criterion(features, labels_on_device[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            steps += 1
            torch_xla.sync()
        if epoch % 2 == 0:
            print(f"epoch {epoch} loss {running.item() / steps:.4f} rank-1 {rank_one(model, *held_out, device):.3f} "
                  f"({time.time() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
