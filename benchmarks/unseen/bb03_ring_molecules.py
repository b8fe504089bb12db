import random
import time

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool

MAX_NODES, MAX_EDGES, GRAPHS = 64, 160, 8


def ring(rng):
    n = rng.choice([5, 6, 6])
    x = torch.zeros(n, 6)
    kinds = [rng.randrange(4) for _ in range(n)]
    x[torch.arange(n), torch.tensor(kinds)] = 1.0
    x[:, 4] = n / 6
    src = list(range(n))
    dst = [(i + 1) % n for i in src]
    edge_index = torch.tensor([src + dst, dst + src])
    y = torch.tensor([[sum(kinds) / n + 0.3 * (n == 5)]])
    return Data(x=x, edge_index=edge_index, y=y)


class PaddedLoader:
    """Batches of molecules with the nodes and edges filled up to a fixed size.

    The filling nodes belong to one more graph, and the filling edges join the last
    node to itself, so every batch has the same shapes."""

    def __init__(self, graphs, shuffle=True, seed=0):
        self.graphs, self.shuffle, self.rng = graphs, shuffle, random.Random(seed)

    def __len__(self):
        return len(self.graphs) // GRAPHS

    def __iter__(self):
        order = list(range(len(self.graphs)))
        if self.shuffle:
            self.rng.shuffle(order)
        for i in range(len(self)):
            b = Batch.from_data_list([self.graphs[j] for j in order[i * GRAPHS:(i + 1) * GRAPHS]])
            n, e = b.num_nodes, b.num_edges
            yield (F.pad(b.x, (0, 0, 0, MAX_NODES - n)),
                   F.pad(b.edge_index, (0, MAX_EDGES - e), value=MAX_NODES - 1),
                   F.pad(b.batch, (0, MAX_NODES - n), value=GRAPHS),
                   b.y)


class MoleculeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.conv1 = GCNConv(width, width)
        self.conv2 = GCNConv(width, width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, batch):
        h = F.relu(self.inp(x))
        h = h + F.relu(self.conv1(h, edge_index))
        h = h + F.relu(self.conv2(h, edge_index))
        return self.out(global_mean_pool(h, batch, GRAPHS + 1))[:GRAPHS]


class Experiment:
    def __init__(self, epochs=6):
        self.device = torch.device("xla")
        rng = random.Random(7)
        self.train = PaddedLoader([ring(rng) for _ in range(96)])
        self.test = PaddedLoader([ring(rng) for _ in range(24)], shuffle=False)
        self.model = MoleculeNet().to(self.device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=4, gamma=0.5)
        self.epochs = epochs

    def step(self, parts):
        x, edge_index, batch, y = (t.to(self.device) for t in parts)
        pred = self.model(x, edge_index, batch)
        loss = F.mse_loss(pred, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        xm.mark_step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        err = torch.zeros((), device=self.device)
        for parts in self.test:
            x, edge_index, batch, y = (t.to(self.device) for t in parts)
            err += (self.model(x, edge_index, batch) - y).abs().mean()
            xm.mark_step()
        self.model.train()
        return err.item() / len(self.test)

    def run(self):
        for epoch in range(self.epochs):
            began, total = time.time(), torch.zeros((), device=self.device)
            for parts in self.train:
                total += self.step(parts)
            self.sched.step()
            print(f"epoch {epoch}: mse {total.item() / len(self.train):.4f} "
                  f"mae {self.evaluate():.4f} ({time.time() - began:.1f}s)", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Experiment().run()
