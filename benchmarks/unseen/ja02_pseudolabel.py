"""Semi-supervised node classification: a two-layer GCN that teaches itself with pseudo-labels.

A stochastic block model gives the graph; five nodes of each community are labelled.  After a
few warm-up epochs, the unlabelled nodes about which the network is confident join the loss.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import stochastic_blockmodel_graph

torch.manual_seed(11)


@dataclass
class Config:
    communities: int = 5
    per_community: int = 60
    features: int = 24
    hidden: int = 16
    labelled: int = 5
    epochs: int = 40
    warmup: int = 12
    every: int = 2            # refresh the pseudo-labels every so many epochs
    threshold: float = 0.55
    pseudo_weight: float = 0.5
    lr: float = 0.4
    weight_decay: float = 5e-4


def make_graph(cfg):
    sizes = [cfg.per_community] * cfg.communities
    probs = torch.full((cfg.communities, cfg.communities), 0.008)
    probs.fill_diagonal_(0.07)
    edges = stochastic_blockmodel_graph(sizes, probs)
    y = torch.arange(cfg.communities).repeat_interleave(cfg.per_community)
    centers = torch.randn(cfg.communities, cfg.features) * 0.35
    x = centers[y] + torch.randn(len(y), cfg.features)
    train = torch.zeros(len(y), dtype=torch.bool)
    test = torch.zeros(len(y), dtype=torch.bool)
    for c in range(cfg.communities):
        own = (y == c).nonzero()[:, 0]
        own = own[torch.randperm(len(own))]
        train[own[:cfg.labelled]] = True
        test[own[-20:]] = True
    return Data(x=x, edge_index=edges, y=y, train_mask=train, test_mask=test)


class GCN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.first = GCNConv(cfg.features, cfg.hidden, normalize=False)
        self.second = GCNConv(cfg.hidden, cfg.communities, normalize=False)

    def forward(self, x, edge_index, edge_weight):
        h = F.relu(self.first(x, edge_index, edge_weight))
        return self.second(h, edge_index, edge_weight)


def normalised(data):
    """Symmetric normalisation with self loops, done once on the host."""
    n = data.num_nodes
    loops = torch.arange(n).repeat(2, 1)
    edge_index = torch.cat([data.edge_index, loops], 1)
    deg = torch.bincount(edge_index[1], minlength=n).float()
    weight = (deg[edge_index[0]] * deg[edge_index[1]]).rsqrt()
    return edge_index, weight


def pseudo_labels(logits, cfg):
    confidence, guess = logits.detach().softmax(-1).max(-1)
    return confidence > cfg.threshold, guess


def main(cfg):
    device = torch_xla.device()
    data = make_graph(cfg)
    edge_index, weight = normalised(data)
    labelled = data.train_mask.nonzero()[:, 0].to(device)
    tested = data.test_mask.nonzero()[:, 0].to(device)
    unlabelled = ~data.train_mask.to(device)
    x, y = data.x.to(device), data.y.to(device)
    edge_index, weight = edge_index.to(device), weight.to(device)

    model = GCN(cfg).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=cfg.weight_decay)
    sure = torch.zeros(data.num_nodes, dtype=torch.bool, device=device)
    guess = torch.zeros(data.num_nodes, dtype=torch.long, device=device)
    torch_xla.sync()

    for epoch in range(cfg.epochs):
        opt.zero_grad()
        logits = model(x, edge_index, weight)
        loss = F.cross_entropy(logits[labelled], y[labelled])
        if epoch >= cfg.warmup:
            chosen = sure & unlabelled
            extra = F.cross_entropy(logits[chosen], guess[chosen], reduction="sum")
            loss = loss + cfg.pseudo_weight * extra / data.num_nodes
        loss.backward()
        opt.step()
        if epoch >= cfg.warmup - 1 and epoch % cfg.every == 1:
            sure, guess = pseudo_labels(logits, cfg)
        torch_xla.sync()
        if epoch % 13 == 12 or epoch == cfg.epochs - 1:
            hits = (logits[tested].argmax(-1) == y[tested]).float().mean()
            print(f"epoch {epoch:3d} loss {loss.item():.4f} test accuracy {hits.item():.3f} "
                  f"pseudo-labelled {int(sure.sum())}", flush=True)


if __name__ == "__main__":
    main(Config())
