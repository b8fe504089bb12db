"""Overflow risk of sewer catchments: a GNN over pipe networks (torch_geometric), compiled."""
import argparse
import random
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool


def grow_catchment(rng, generator):
    """A random tree of manholes that drain to an outfall, with some relief pipes across."""
    n = rng.randint(12, 40)
    downstream = [(i, rng.randrange(max(0, i - 5), i)) for i in range(1, n)]
    relief = [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randint(0, 4))]
    edges = torch.tensor(downstream + relief).t().contiguous()
    inflow = torch.rand(n, generator=generator)
    diameter = 0.2 + torch.rand(edges.shape[1], generator=generator)
    depth = torch.rand(n, generator=generator)
    load = inflow.clone()
    for k in range(n - 1, 0, -1):
        load[downstream[k - 1][1]] += load[k]
    stress = (load[edges[1, : n - 1]] / (8 * diameter[: n - 1] ** 2)).mean() + 0.2 * torch.randn((), generator=generator)
    return Data(x=torch.stack([inflow, depth, torch.ones(n)], dim=1), edge_index=edges,
                edge_attr=torch.stack([diameter, diameter ** 2], dim=1),
                y=stress.view(1))


class RiskNet(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.node_in = nn.Linear(3, width)
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for _ in range(layers):
            mlp = nn.Sequential(nn.Linear(width, width * 2), nn.ReLU(), nn.Linear(width * 2, width))
            self.convs.append(GINEConv(mlp, edge_dim=2, train_eps=True))
            self.norms.append(nn.LayerNorm(width))
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.node_in(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(norm(conv(h, edge_index, edge_attr)))
        pooled = torch.cat([global_mean_pool(h, batch), global_add_pool(h, batch) / 10], dim=-1)
        return self.head(pooled).squeeze(-1)


def run_epoch(model, loader, optimizer=None):
    training = optimizer is not None
    model.train(training)
    loss_sum, right, seen = torch.zeros(()), torch.zeros(()), 0
    with torch.set_grad_enabled(training):
        for data in loader:
            logits = model(data.x, data.edge_index, data.edge_attr, data.batch)
            loss = F.binary_cross_entropy_with_logits(logits, data.y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.detach() * data.num_graphs
            right += ((logits.detach() > 0) == (data.y > 0.5)).sum()
            seen += data.num_graphs
    return (loss_sum / seen).item(), (right / seen).item()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--catchments", type=int, default=640)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--backend", default="aot_eager")
    args = ap.parse_args()
    torch.manual_seed(2)
    rng, generator = random.Random(2), torch.Generator().manual_seed(2)

    catchments = [grow_catchment(rng, generator) for _ in range(args.catchments)]
    split = int(0.8 * len(catchments))
    train = DataLoader(catchments[:split], batch_size=16, shuffle=True)
    val = DataLoader(catchments[split:], batch_size=16)
    threshold = torch.cat([c.y for c in catchments]).quantile(0.6)
    for c in catchments:
        c.y = (c.y > threshold).float()
    share = torch.cat([c.y for c in catchments]).mean().item()
    print(f"{len(catchments)} catchments, {share:.0%} overflow")

    model = RiskNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    compiled = torch.compile(model, backend=args.backend, dynamic=False)
    best = 0.0
    for epoch in range(args.epochs):
        began = time.perf_counter()
        loss, acc = run_epoch(compiled, train, optimizer)
        val_loss, val_acc = run_epoch(compiled, val)
        best = max(best, val_acc)
        print(f"epoch {epoch}  train {loss:.3f}/{acc:.3f}  val {val_loss:.3f}/{val_acc:.3f}  "
              f"{time.perf_counter() - began:.2f} s")
    print(f"best validation accuracy {best:.3f}")


if __name__ == "__main__":
    main()
