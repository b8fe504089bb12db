"""Predicts a property of small molecule-like graphs: dense message passing on the xla device.

Graphs come in many sizes; each goes to the smallest bucket that holds it, and every bucket is
one static shape. Losses stay on the device until the epoch has ended.
"""
import argparse
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch_xla

BUCKETS = (12, 20)
KINDS = 7


def random_graph(rng):
    """A tree with some extra bonds; the target counts triangles and weighs the atoms' kinds."""
    n = int(rng.integers(6, BUCKETS[-1] + 1))
    adjacency = np.zeros((n, n), dtype=np.float32)
    for node in range(1, n):
        other = rng.integers(max(0, node - 4), node)
        adjacency[node, other] = adjacency[other, node] = 1
    for _ in range(n // 3):
        a, b = rng.integers(0, n, 2)
        if a != b:
            adjacency[a, b] = adjacency[b, a] = 1
    kinds = rng.integers(0, KINDS, n)
    triangles = np.trace(adjacency @ adjacency @ adjacency) / 6
    polar = (adjacency[kinds == 0].sum() + 0.5 * (kinds == 3).sum()) / n
    return adjacency, kinds, np.float32(0.3 * triangles + polar)


def pack(graphs, batch):
    """Bucketed, padded batches; a bucket's last, short batch is filled with empty graphs."""
    by_bucket = defaultdict(list)
    for graph in graphs:
        by_bucket[next(b for b in BUCKETS if len(graph[1]) <= b)].append(graph)
    packed = []
    for size, members in sorted(by_bucket.items()):
        for start in range(0, len(members), batch):
            adjacency = np.zeros((batch, size, size), np.float32)
            kinds = np.zeros((batch, size), np.int64)
            present = np.zeros((batch, size), np.float32)
            target = np.zeros(batch, np.float32)
            for row, (adj, kind, y) in enumerate(members[start:start + batch]):
                n = len(kind)
                adjacency[row, :n, :n], kinds[row, :n] = adj, kind
                present[row, :n], target[row] = 1, y
            packed.append(tuple(map(torch.from_numpy, (adjacency, kinds, present, target))))
    return packed


class MessagePassing(nn.Module):
    def __init__(self, width, rounds):
        super().__init__()
        self.embed = nn.Embedding(KINDS, width)
        self.message = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, adjacency, kinds, present):
        x = self.embed(kinds) * present[..., None]
        for message, update in zip(self.message, self.update):
            incoming = torch.bmm(adjacency, torch.relu(message(x)))
            x = x + torch.tanh(update(torch.cat([x, incoming], -1))) * present[..., None]
        pooled = x.sum(1) / present.sum(1, keepdim=True).clamp(min=1)
        return self.readout(pooled).squeeze(-1)


def clip_on_device(parameters, limit):
    grads = [p.grad for p in parameters]
    norm = torch.sqrt(sum((g * g).sum() for g in grads))
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)


def run_epoch(model, data, device, optimizer=None, order=None):
    total = torch.zeros((), device=device)
    count = torch.zeros((), device=device)
    for index in (order if order is not None else range(len(data))):
        adjacency, kinds, present, target = data[index]
        real = (present.sum(1) > 0).float()
        squared = ((model(adjacency, kinds, present) - target) ** 2 * real).sum()
        if optimizer is not None:
            optimizer.zero_grad(set_to_none=True)
            (squared / real.sum()).backward()
            clip_on_device(list(model.parameters()), 1.0)
            optimizer.step()
        total += squared.detach()
        count += real.sum()
        torch_xla.sync()
    return (total / count).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--graphs", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()
    graphs = [random_graph(rng) for _ in range(args.graphs)]
    cut = int(0.8 * len(graphs))
    train, held = ([tuple(t.to(device) for t in b) for b in pack(part, args.batch)]
                   for part in (graphs[:cut], graphs[cut:]))
    variance = np.var([g[2] for g in graphs[cut:]])
    model = MessagePassing(width=48, rounds=2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    best, began = float("inf"), time.perf_counter()
    for epoch in range(args.epochs):
        loss = run_epoch(model, train, device, optimizer, rng.permutation(len(train)))
        with torch.no_grad():
            mse = run_epoch(model, held, device)
        if mse < best:  # early stopping needs the number itself
            best, since = mse, epoch
        elif epoch - since >= 5:
            break
        print(f"epoch {epoch:2d} train {loss:.4f} held-out {mse:.4f} R2 {1 - mse / variance:+.3f}")
    torch_xla.sync(wait=True)
    print(f"best {best:.4f} in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
