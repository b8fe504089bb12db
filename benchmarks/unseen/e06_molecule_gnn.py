"""A graph network that predicts a property of small molecules, on an XLA device with torch_geometric's layers."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool

log = logging.getLogger("molecules")
ELEMENTS = 6


def random_molecule(gen, atoms):
    """A chain of atoms with rings closed here and there; the target depends on elements and bonds."""
    kinds = torch.randint(0, ELEMENTS, (atoms,), generator=gen)
    bonds = [(i, i + 1) for i in range(atoms - 1)]
    for i in range(0, atoms - 5, 5):
        bonds.append((i, i + 5))
    pairs = torch.tensor(bonds).t()
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    y = (kinds == 2).float().mean() + 0.5 * (kinds[pairs[0]] == kinds[pairs[1]]).float().mean()
    return Data(x=F.one_hot(kinds, ELEMENTS).float(), edge_index=edge_index, y=y.view(1))


def make_set(n, seed):
    gen = torch.Generator().manual_seed(seed)
    return [random_molecule(gen, 12) for _ in range(n)]


class MoleculeNet(nn.Module):
    def __init__(self, hidden=32, layers=2):
        super().__init__()
        self.embed = nn.Linear(ELEMENTS, hidden)
        self.convs = nn.ModuleList(GraphConv(hidden, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, x, edge_index, batch):
        h = self.embed(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.silu(norm(conv(h, edge_index)))
        return self.head(global_add_pool(h, batch)).squeeze(-1)


class MeanError:
    """Mean absolute error over an epoch, summed on the device and read once."""

    def __init__(self, device):
        self.total = torch.zeros((), device=device)
        self.count = 0

    def add(self, prediction, target):
        self.total += (prediction.detach() - target).abs().sum()
        self.count += target.shape[0]

    def value(self):
        return self.total.item() / max(1, self.count)


def run_epoch(model, loader, device, optimizer=None):
    error = MeanError(device)
    model.train(optimizer is not None)
    with torch.set_grad_enabled(optimizer is not None):
        for data in loader:
            data = data.to(device)
            prediction = model(data.x, data.edge_index, data.batch)
            if optimizer is not None:
                loss = F.smooth_l1_loss(prediction, data.y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            error.add(prediction, data.y)
            torch_xla.sync()
    return error.value()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(1)
    device = torch_xla.device()

    train_loader = DataLoader(make_set(args.molecules, seed=0), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(make_set(128, seed=1), batch_size=args.batch_size)
    model = MoleculeNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        train_error = run_epoch(model, train_loader, device, optimizer)
        test_error = run_epoch(model, test_loader, device)
        log.info("epoch %d: error %.3f, on the test set %.3f", epoch, train_error, test_error)


if __name__ == "__main__":
    main()
