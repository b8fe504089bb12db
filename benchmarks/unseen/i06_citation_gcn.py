"""Classifies papers in a citation graph with torch_geometric's GCN on an XLA device, with edges dropped for regularisation."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import dropout_edge, to_undirected


def citation_graph(papers, topics, words, seed):
    """Papers cite mostly papers of their own topic; their words come from their topic's distribution."""
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, topics, (papers,), generator=gen)
    profile = torch.rand(topics, words, generator=gen) ** 3
    x = (torch.rand(papers, words, generator=gen) < 0.5 * profile[y] + 0.05).float()
    source = torch.randint(0, papers, (papers * 6,), generator=gen)
    target = torch.randint(0, papers, (papers * 6,), generator=gen)
    near = (y[source] == y[target]) | (torch.rand(papers * 6, generator=gen) < 0.1)
    edges = torch.stack([source[near], target[near]])
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    order = torch.randperm(papers, generator=gen)
    train = torch.zeros(papers, dtype=torch.bool)
    train[order[: papers // 5]] = True
    return Data(x=x, edge_index=edges, y=y, train_mask=train)


class PaperGCN(nn.Module):
    def __init__(self, words, topics, hidden=32, dropout=0.3):
        super().__init__()
        self.first = GCNConv(words, hidden)
        self.second = GCNConv(hidden, topics)
        self.norm = nn.LayerNorm(hidden)
        self.dropout = dropout

    def forward(self, x, edge_index):
        h = F.relu(self.norm(self.first(x, edge_index)))
        h = F.dropout(h, self.dropout, self.training)
        return self.second(h, edge_index)


class MaskedLoss(nn.Module):
    """Cross entropy over the papers whose topic is known; the mask is a weight, so nothing is cut out."""

    def __init__(self, mask):
        super().__init__()
        self.register_buffer("weight", mask.float() / mask.sum())

    def forward(self, logits, y):
        return (F.cross_entropy(logits, y, reduction="none") * self.weight).sum()


class Experiment:
    def __init__(self, data, args):
        self.device = torch_xla.device()
        self.edges = data.edge_index
        self.x, self.y = data.x.to(self.device), data.y.to(self.device)
        self.all_edges = self.edges.to(self.device)
        self.test = (~data.train_mask).to(self.device).float()
        self.model = PaperGCN(data.x.shape[1], int(data.y.max()) + 1).to(self.device)
        self.loss = MaskedLoss(data.train_mask).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr, weight_decay=5e-4)
        self.drop, self.refresh = args.drop_edge, args.refresh
        self.thinned, self.age = None, 0

    def thin_graph(self):
        """The graph with some of its edges left out, a new choice every few epochs."""
        if self.age % self.refresh == 0:
            edges, _ = dropout_edge(self.edges, p=self.drop, force_undirected=True)
            self.thinned = edges.to(self.device)
        self.age += 1
        return self.thinned

    def epoch(self):
        self.model.train()
        loss = self.loss(self.model(self.x, self.thin_graph()), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        torch_xla.sync()
        return loss.detach()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = (self.model(self.x, self.all_edges).argmax(-1) == self.y).float()
        return ((right * self.test).sum() / self.test.sum()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--papers", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--refresh", type=int, default=10)
    parser.add_argument("--drop-edge", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(4)
    data = citation_graph(args.papers, 5, 60, seed=4)
    print(data)
    experiment = Experiment(data, args)
    for epoch in range(1, args.epochs + 1):
        loss = experiment.epoch()
        if epoch % 20 == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {experiment.accuracy():.3f}")


if __name__ == "__main__":
    main()
