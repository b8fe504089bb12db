"""Solubility-like property of synthetic molecules: a GIN-style network of torch_geometric on XLA."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

ELEMENTS = ["C", "N", "O", "F", "S", "Cl"]
POLARITY = torch.tensor([-0.4, 0.9, 1.1, 0.2, 0.1, -0.3])
MAX_ATOMS = 30


def random_molecule(rng):
    """A tree of heavy atoms with up to two ring closures; the target mixes polarity, size and neighbours."""
    n = int(rng.integers(8, MAX_ATOMS + 1))
    kinds = rng.choice(len(ELEMENTS), n, p=[0.6, 0.12, 0.14, 0.05, 0.05, 0.04])
    src, dst, degree = [], [], np.zeros(n, int)
    for i in range(1, n):
        options = [j for j in range(max(0, i - 6), i) if degree[j] < 4]
        j = int(rng.choice(options))
        src += [i, j]
        dst += [j, i]
        degree[[i, j]] += 1
    for _ in range(int(rng.integers(0, 3))):
        i, j = rng.choice(n, 2, replace=False)
        src += [int(i), int(j)]
        dst += [int(j), int(i)]
    x = F.one_hot(torch.from_numpy(kinds), len(ELEMENTS)).float()
    edges = torch.tensor([src, dst])
    polar = POLARITY[kinds]
    y = polar.mean() * 2 + 0.5 * (polar[edges[0]] * polar[edges[1]]).mean() - 0.03 * n
    return Data(x=x, edge_index=edges, y=y.view(1) + 0.02 * torch.randn(1))


def round_up(n, multiple=8):
    return (n + multiple - 1) // multiple * multiple


def pad_batch(graphs):
    """Stack graphs and pad; the spare nodes and edges belong to one dummy graph at the end."""
    n_nodes = round_up(sum(g.num_nodes for g in graphs) + 1)
    n_edges = round_up(sum(g.num_edges for g in graphs))
    x = torch.zeros(n_nodes, len(ELEMENTS))
    edge = torch.full((2, n_edges), n_nodes - 1)
    owner = torch.full((n_nodes,), len(graphs))
    at, ate = 0, 0
    for g, graph in enumerate(graphs):
        k, e = graph.num_nodes, graph.num_edges
        x[at:at + k] = graph.x
        owner[at:at + k] = g
        edge[:, ate:ate + e] = graph.edge_index + at
        at, ate = at + k, ate + e
    y = torch.cat([g.y for g in graphs])
    return x, edge, owner, y


class MoleculeNet(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.embed = nn.Linear(len(ELEMENTS), width)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), train_eps=True)
            for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, owner, n_graphs):
        h = self.embed(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(norm(conv(h, edge_index)))
        pooled = torch.cat([global_mean_pool(h, owner, n_graphs), global_add_pool(h, owner, n_graphs) / MAX_ATOMS], dim=1)
        return self.readout(pooled).squeeze(-1)[:-1]          # the dummy graph is left out


def batches(graphs, size, device, rng=None):
    order = np.arange(len(graphs)) if rng is None else rng.permutation(len(graphs))
    for i in range(0, len(order) - size + 1, size):
        yield [t.to(device) for t in pad_batch([graphs[j] for j in order[i:i + size]])]


@torch.no_grad()
def mean_absolute_error(model, graphs, size, device):
    model.eval()
    err, count = torch.zeros((), device=device), 0
    for x, edge, owner, y in batches(graphs, size, device):
        err += (model(x, edge, owner, size + 1) - y).abs().sum()
        count += len(y)
        torch_xla.sync()
    return err.item() / count


def main(epochs=2, size=64):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()
    molecules = [random_molecule(rng) for _ in range(512)]
    train, test = molecules[:384], molecules[384:]
    model = MoleculeNet().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        model.train()
        begin, total, steps = time.time(), torch.zeros((), device=device), 0
        for x, edge, owner, y in batches(train, size, device, rng):
            opt.zero_grad()
            loss = F.mse_loss(model(x, edge, owner, size + 1), y)
            loss.backward()
            opt.step()
            total += loss.detach()
            steps += 1
            xm.mark_step()
        mae = mean_absolute_error(model, test, size, device)
        print(f"epoch {epoch}: mse {total.item() / steps:.4f}  test MAE {mae:.4f}  ({time.time() - begin:.1f} s)")


if __name__ == "__main__":
    main()
