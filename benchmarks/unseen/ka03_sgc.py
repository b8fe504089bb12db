"""Citation-network baseline table: SGC (Wu et al., 2019) against an MLP,
several seeds, as reviewers asked for. torch_geometric, on an XLA device."""
import statistics

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch_geometric.nn import SGConv

NODES, CLASSES, FEATURES = 3000, 6, 64
SEEDS = (0, 1)
EPOCHS = 140


def planted_citations(generator, degree=8, homophily=0.5):
    """Papers of the same topic cite each other; features are weak topic words."""
    topic = torch.randint(0, CLASSES, (NODES,), generator=generator)
    order = torch.argsort(topic)
    members = [order[topic[order] == c] for c in range(CLASSES)]
    source, target = [], []
    for node in range(NODES):
        for _ in range(degree):
            if torch.rand((), generator=generator) < homophily:
                pool = members[int(topic[node])]
            else:
                pool = order
            other = pool[torch.randint(0, len(pool), (1,), generator=generator)]
            source.append(node)
            target.append(int(other))
    edge_index = torch.tensor([source + target, target + source])
    words = torch.randn(CLASSES, FEATURES, generator=generator)
    x = 0.35 * words[topic] + torch.randn(NODES, FEATURES, generator=generator)
    train = torch.zeros(NODES, dtype=torch.bool)
    for pool in members:
        train[pool[torch.randperm(len(pool), generator=generator)[:20]]] = True
    return x, edge_index, topic, train


class SimpleGraphClassifier(nn.Module):
    def __init__(self, hops=4, dropout=0.2):
        super().__init__()
        self.conv = SGConv(FEATURES, CLASSES, K=hops)
        self.dropout = dropout

    def forward(self, x, edge_index):
        logits = self.conv(x, edge_index)
        return F.dropout(logits, self.dropout, self.training)


class WordsOnly(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Dropout(0.4),
                                 nn.Linear(hidden, CLASSES))

    def forward(self, x, edge_index):
        return self.net(x)


def masked_loss(logits, topic, weight):
    per_node = F.cross_entropy(logits, topic, reduction="none")
    return (per_node * weight).sum() / weight.sum()


def fit(model, graph, device):
    x, edge_index, topic, train = (t.to(device) for t in graph)
    weight = train.float()
    model = model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=5e-4)
    model.train()
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        loss = masked_loss(model(x, edge_index), topic, weight)
        loss.backward()
        optimizer.step()
        xm.mark_step()
    model.eval()
    with torch.no_grad():
        hit = (model(x, edge_index).argmax(1) == topic).float()
        test = 1.0 - weight
        return ((hit * test).sum() / test.sum()).item()


def main():
    device = torch_xla.device()
    graph = planted_citations(torch.Generator().manual_seed(5))
    table = {}
    for name, build in (("SGC", SimpleGraphClassifier), ("MLP", WordsOnly)):
        scores = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            scores.append(fit(build(), graph, device))
        table[name] = scores
    for name, scores in table.items():
        print(f"{name:4s} {100 * statistics.mean(scores):.1f} +- {100 * statistics.stdev(scores):.1f}")


if __name__ == "__main__":
    main()
