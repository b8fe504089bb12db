"""Graph regression: predict a ring-and-degree score of random molecule-like graphs with GIN layers."""
import time
from functools import partial

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import scatter

ATOMS, WIDTH, LAYERS = 5, 40, 3


def molecule(generator):
    """A random tree of 8..24 atoms with a few extra bonds closing rings."""
    n = int(torch.randint(8, 25, (1,), generator=generator))
    parent = (torch.rand(n - 1, generator=generator) * torch.arange(1, n)).long()
    bonds = torch.stack([torch.arange(1, n), parent])
    extra = torch.randint(0, n, (2, int(torch.randint(0, 5, (1,), generator=generator))), generator=generator)
    extra = extra[:, extra[0] != extra[1]]
    bonds = torch.cat([bonds, extra], 1)
    edge_index = torch.cat([bonds, bonds.flip(0)], 1)
    kind = torch.randint(0, ATOMS, (n,), generator=generator)
    degree = torch.bincount(edge_index[0], minlength=n).float()
    hetero = (kind[bonds[0]] != kind[bonds[1]]).float().mean()
    y = 0.8 * extra.shape[1] + degree.std() + 2 * hetero + 0.1 * (kind == 3).sum()
    return Data(x=kind, edge_index=edge_index, y=y.view(1))


class GIN(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, edge_index):
        source, target = edge_index
        received = scatter(x[source], target, dim=0, dim_size=x.shape[0], reduce="sum")
        return x + torch.relu(self.norm(self.mlp((1 + self.eps) * x + received)))


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, WIDTH)
        self.layers = nn.ModuleList([GIN(WIDTH) for _ in range(LAYERS)])
        self.readout = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x, edge_index, batch, graphs: int):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, edge_index)
        pooled = [scatter(x, batch, dim=0, dim_size=graphs, reduce=how) for how in ("sum", "mean")]
        return self.readout(torch.cat([0.1 * pooled[0], pooled[1]], -1)).squeeze(-1)


class EarlyStop:
    def __init__(self, patience):
        self.best, self.left, self.patience = float("inf"), patience, patience

    def __call__(self, value):
        if value < self.best:
            self.best, self.left = value, self.patience
        else:
            self.left -= 1
        return self.left == 0


def predict(net, data):
    return net(data.x, data.edge_index, data.batch, data.num_graphs)


@torch.no_grad()
def mean_error(net, loader):
    total, count = torch.zeros(()), 0
    for data in loader:
        total += (predict(net, data) - data.y).abs().sum()
        count += data.num_graphs
    return (total / count).item()


def main():
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(7)
    graphs = [molecule(generator) for _ in range(1200)]
    make = partial(DataLoader, batch_size=40)
    train, valid = make(graphs[:1000], shuffle=True, drop_last=True), make(graphs[1000:])

    model = Regressor()
    net = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.5)
    stop = EarlyStop(4)
    print(f"before training: mean error {mean_error(net, valid):.3f}")
    for epoch in range(8):
        began, losses = time.perf_counter(), []
        model.train()
        for data in train:
            loss = nn.functional.l1_loss(predict(net, data), data.y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            losses.append(loss.detach())
        model.eval()
        error = mean_error(net, valid)
        plateau.step(error)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, validation error {error:.3f}, "
              f"{time.perf_counter() - began:.1f} s")
        if stop(error):
            break


if __name__ == "__main__":
    main()
