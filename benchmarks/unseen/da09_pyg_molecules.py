"""Predicts a property of random molecule like graphs with torch_geometric on an XLA device."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

import torch_xla
import torch_xla.core.xla_model as xm


def molecule(rng):
    """A random tree with a few rings; the property counts rings and kinds of atoms."""
    n = int(rng.integers(6, 16))
    kind = rng.integers(4, size=n)
    edges = [(i, int(rng.integers(i))) for i in range(1, n)]
    rings = int(rng.integers(0, 4))
    for _ in range(rings):
        a, b = rng.choice(n, 2, replace=False)
        edges.append((int(a), int(b)))
    e = torch.tensor(edges).T
    y = 0.5 * rings + 0.1 * (kind == 2).sum() - 0.05 * n
    return Data(x=F.one_hot(torch.from_numpy(kind), 4).float(), edge_index=torch.cat([e, e.flip(0)], 1),
                y=torch.tensor([y], dtype=torch.float32))


def molecules(n, seed):
    rng = np.random.default_rng(seed)
    return [molecule(rng) for _ in range(n)]


class GIN(nn.Module):
    def __init__(self, width=48, layers=2):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), train_eps=True)
            for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, batch, graphs):
        h = self.embed(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(norm(conv(h, edge_index)))
        return self.head(global_add_pool(h, batch, size=graphs)).squeeze(-1)


class Standardise:
    def __init__(self, values):
        self.mean, self.std = values.mean(), values.std()

    def __call__(self, y):
        return (y - self.mean) / self.std


def prepare(batch, scale, device):
    """Moves what the model needs to the device."""
    x, edge_index, index = batch.x, batch.edge_index, batch.batch
    y = scale(batch.y)
    return x.to(device), edge_index.to(device), index.to(device), y.to(device)


def run_epoch(model, loader, scale, device, optimizer=None):
    model.train(optimizer is not None)
    total = torch.zeros((), device=device)
    graphs = loader.batch_size
    for batch in loader:
        x, edge_index, index, y = prepare(batch, scale, device)
        with torch.set_grad_enabled(optimizer is not None):
            out = model(x, edge_index, index, graphs)
            loss = F.smooth_l1_loss(out, y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
        total += loss.detach()
        torch_xla.sync()
    return total.item() / len(loader)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--train", type=int, default=320)
    args = p.parse_args()
    torch.manual_seed(1)
    device = torch_xla.device()
    train, test = molecules(args.train, 1), molecules(96, 2)
    scale = Standardise(torch.cat([d.y for d in train]))
    train_loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test, args.batch_size)
    model = GIN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        tr = run_epoch(model, train_loader, scale, device, optimizer)
        te = run_epoch(model, test_loader, scale, device)
        print(f"epoch {epoch}: train {tr:.3f}, test {te:.3f}")


if __name__ == "__main__":
    main()
