"""Anomaly scores for sensor networks with torch_geometric on XLA."""
import time

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_dense_batch

NODES, FEATS, DEGREE = 12, 6, 3


def ring_with_chords(gen):
    src = torch.arange(NODES).repeat_interleave(DEGREE)
    hop = torch.tensor([1, 2, 5]).repeat(NODES)
    dst = (src + hop) % NODES
    edges = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    x = torch.randn(NODES, FEATS, generator=gen)
    faulty = torch.rand((), generator=gen) < 0.5
    if faulty:
        x[int(torch.randint(0, NODES, (1,), generator=gen))] += 2.5
    return Data(x=x, edge_index=edges, y=faulty.float().view(1))


class NetworkScorer(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.convs = nn.ModuleList([
            GCNConv(FEATS, hidden), GCNConv(hidden, hidden), GCNConv(hidden, hidden)])
        self.query = nn.Parameter(torch.randn(hidden) * 0.1)
        self.out = nn.Linear(hidden, 1)

    def forward(self, data):
        h = data.x
        for conv in self.convs:
            h = F.elu(conv(h, data.edge_index))
        dense, valid = to_dense_batch(h, data.batch)
        weight = (dense @ self.query).masked_fill(~valid, -1e9).softmax(-1)
        pooled = (weight.unsqueeze(-1) * dense).sum(1)
        return self.out(pooled).squeeze(-1)


class Runner:
    def __init__(self, model, device, lr=5e-3):
        self.model, self.device = model.to(device), device
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.8)

    def train_epoch(self, loader):
        self.model.train()
        total = torch.zeros((), device=self.device)
        for data in loader:
            data = data.to(self.device)
            self.optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(self.model(data), data.y)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            xm.mark_step()
        self.sched.step()
        return total.item() / len(loader)

    @torch.no_grad()
    def accuracy(self, loader):
        self.model.eval()
        hits = torch.zeros((), device=self.device)
        count = 0
        for data in loader:
            data = data.to(self.device)
            hits += ((self.model(data) > 0) == (data.y > 0.5)).sum()
            count += data.num_graphs
            xm.mark_step()
        return hits.item() / count


def main():
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    graphs = [ring_with_chords(gen) for _ in range(400)]
    train = DataLoader(graphs[:320], batch_size=8, shuffle=True)
    valid = DataLoader(graphs[320:], batch_size=8)
    runner = Runner(NetworkScorer(), torch.device("xla"))
    for epoch in range(4):
        t = time.time()
        loss = runner.train_epoch(train)
        acc = runner.accuracy(valid)
        print(f"epoch {epoch} loss {loss:.4f} acc {acc:.3f} {time.time() - t:.1f}s")


if __name__ == "__main__":
    main()
