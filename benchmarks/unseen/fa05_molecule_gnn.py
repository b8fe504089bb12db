"""Message passing network on random molecule-like graphs, PyTorch/XLA. Graphs are batched into one
disjoint union and padded to one of a few sizes."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

NODE_BUCKETS = (256, 384, 512)
EDGE_FACTOR = 3
GRAPHS = 16
FEATURES = 8


@dataclass
class Graph:
    x: np.ndarray
    edges: np.ndarray
    y: float


def random_graph(rng):
    n = int(rng.integers(8, 30))
    src = np.arange(1, n)
    dst = np.array([rng.integers(max(0, i - 4), i) for i in src])
    ring = rng.integers(0, n, (max(1, n // 5), 2))
    e = np.concatenate([np.stack([src, dst]), ring.T], 1)
    e = np.concatenate([e, e[::-1]], 1)
    kind = rng.integers(0, FEATURES, n)
    x = np.eye(FEATURES, dtype=np.float32)[kind]
    charge = (kind - 3.5) / 4
    y = float((charge[e[0]] * charge[e[1]]).sum() / n)
    return Graph(x, e, y)


def collate(graphs):
    nodes, edges = sum(len(g.x) for g in graphs), sum(g.edges.shape[1] for g in graphs)
    size = next(b for b in NODE_BUCKETS if nodes < b and edges <= b * EDGE_FACTOR)
    x = np.zeros((size, FEATURES), np.float32)
    owner = np.full(size, GRAPHS, np.int64)
    e = np.full((2, size * EDGE_FACTOR), size - 1, np.int64)
    weight = np.zeros(size * EDGE_FACTOR, np.float32)
    at = ea = 0
    for i, g in enumerate(graphs):
        x[at:at + len(g.x)] = g.x
        owner[at:at + len(g.x)] = i
        e[:, ea:ea + g.edges.shape[1]] = g.edges + at
        weight[ea:ea + g.edges.shape[1]] = 1
        at, ea = at + len(g.x), ea + g.edges.shape[1]
    y = np.array([g.y for g in graphs], np.float32)
    return [torch.from_numpy(a) for a in (x, e, weight, owner, y)]


class Conv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))
        self.update = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU())
        self.norm = nn.LayerNorm(d)

    def forward(self, h, e, weight):
        m = self.message(torch.cat([h[e[0]], h[e[1]]], 1)) * weight[:, None]
        total = torch.zeros_like(h).index_add_(0, e[1], m)
        return self.norm(h + self.update(torch.cat([h, total], 1)))


class Net(nn.Module):
    def __init__(self, d=48, layers=2):
        super().__init__()
        self.embed = nn.Linear(FEATURES, d)
        self.convs = nn.ModuleList(Conv(d) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, x, e, weight, owner):
        h = self.embed(x)
        for conv in self.convs:
            h = conv(h, e, weight)
        pooled = torch.zeros(GRAPHS + 1, h.shape[1], device=h.device).index_add_(0, owner, h)
        count = torch.zeros(GRAPHS + 1, device=h.device).index_add_(0, owner, torch.ones_like(owner, dtype=h.dtype))
        return self.out(pooled[:GRAPHS] / count[:GRAPHS, None].clamp(min=1)).squeeze(1)


def batches(graphs, device, order):
    for i in range(0, len(order) - GRAPHS + 1, GRAPHS):
        yield [t.to(device) for t in collate([graphs[j] for j in order[i:i + GRAPHS]])]


def train_epoch(model, opt, graphs, device, rng):
    total, n = torch.zeros((), device=device), 0
    for x, e, weight, owner, y in batches(graphs, device, rng.permutation(len(graphs))):
        opt.zero_grad()
        loss = F.mse_loss(model(x, e, weight, owner), y)
        loss.backward()
        opt.step()
        total += loss.detach()
        n += 1
        torch_xla.sync()
    return total.item() / n


@torch.no_grad()
def evaluate(model, graphs, device):
    model.eval()
    error, n = torch.zeros((), device=device), 0
    for x, e, weight, owner, y in batches(graphs, device, np.arange(len(graphs))):
        error += (model(x, e, weight, owner) - y).abs().mean()
        n += 1
        torch_xla.sync()
    model.train()
    return error.item() / n


def main():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    device = torch_xla.device()
    train, valid = ([random_graph(rng) for _ in range(k)] for k in (640, 160))
    model = Net().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    best, t0 = float("inf"), time.time()
    for epoch in range(8):
        loss = train_epoch(model, opt, train, device, rng)
        mae = evaluate(model, valid, device)
        best = min(best, mae)
        print(f"epoch {epoch} mse {loss:.4f} valid mae {mae:.4f} best {best:.4f} {time.time() - t0:.1f} s", flush=True)


if __name__ == "__main__":
    main()
