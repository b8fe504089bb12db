"""Solubility of made-up molecules: a message passing network of torch_geometric under torch.compile."""
import random
import time

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool

ATOMS = 8
BONDS = 4


def molecule(rng):
    """A random tree with some rings closed; solubility counts polar atoms and punishes rings."""
    n = rng.randint(6, 22)
    atoms = [rng.randrange(ATOMS) for _ in range(n)]
    pairs = [(i, rng.randrange(max(0, i - 4), i)) for i in range(1, n)]
    rings = rng.randint(0, 3)
    for _ in range(rings):
        a, b = rng.sample(range(n), 2)
        pairs.append((a, b))
    bonds = [rng.randrange(BONDS) for _ in pairs]
    index = torch.tensor(pairs + [(b, a) for a, b in pairs]).t().contiguous()
    target = 0.3 * sum(a < 3 for a in atoms) - 0.5 * rings - 0.02 * n + rng.gauss(0, 0.1)
    return Data(
        x=torch.tensor(atoms), edge_index=index, edge_attr=torch.tensor(bonds + bonds), y=torch.tensor([target]),
    )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.conv = GINEConv(mlp, train_eps=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, h, edge_index, bond):
        return h + torch.relu(self.norm(self.conv(h, edge_index, bond)))


class SolubilityNet(nn.Module):
    def __init__(self, width=32, depth=3, drop_until=10):
        super().__init__()
        self.atom = nn.Embedding(ATOMS, width)
        self.bond = nn.Embedding(BONDS, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.drop_until = drop_until
        self.updates = 0

    def edge_dropout(self, bond):
        """Strong at first, then less and less: an annealing over the first updates."""
        self.updates += 1
        p = 0.3 * max(0.0, 1.0 - self.updates / self.drop_until)
        return nn.functional.dropout(bond, p) if p > 0 else bond

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.atom(x)
        bond = self.bond(edge_attr)
        if self.training:
            bond = self.edge_dropout(bond)
        for block in self.blocks:
            h = block(h, edge_index, bond)
        pooled = torch.cat([global_mean_pool(h, batch), global_add_pool(h, batch)], dim=-1)
        return self.readout(pooled).squeeze(-1)


def run_epoch(model, loader, optimizer):
    model.train()
    total = torch.zeros(())
    for data in loader:
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        loss = nn.functional.smooth_l1_loss(out, data.y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * data.num_graphs
    return total.item() / len(loader.dataset)


@torch.no_grad()
def mean_error(model, loader):
    model.eval()
    error = torch.zeros(())
    for data in loader:
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        error += (out - data.y).abs().sum()
    return error.item() / len(loader.dataset)


def main():
    torch.manual_seed(7)
    rng = random.Random(7)
    molecules = [molecule(rng) for _ in range(560)]
    train = DataLoader(molecules[:480], batch_size=16, shuffle=True)
    valid = DataLoader(molecules[480:], batch_size=40)

    net = SolubilityNet()
    model = torch.compile(net, dynamic=True, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    best = float("inf")
    for epoch in range(8):
        began = time.perf_counter()
        loss = run_epoch(model, train, optimizer)
        error = mean_error(model, valid)
        took = time.perf_counter() - began
        mark = ""
        if error < best:
            best, mark = error, " *"
        print(f"epoch {epoch:2d}  loss {loss:.4f}  mean error {error:.4f}  {took:.2f} s{mark}")
    print(f"best mean error {best:.4f}")


if __name__ == "__main__":
    main()
