"""Regression of a property of synthetic molecules with GINE layers from torch_geometric, batches in buckets."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, global_add_pool

NUM_ATOM_TYPES, NUM_BOND_TYPES = 6, 3
BUCKETS = ((416, 896), (480, 1056), (640, 1536))  # room for (atoms, directed bonds) of a batch


@dataclass
class Config:
    molecules: int = 512
    batch_size: int = 32
    hidden: int = 48
    layers: int = 2
    epochs: int = 6
    lr: float = 2e-3


def random_molecule(generator):
    """A random tree of 6 to 20 atoms with a few rings closed."""
    n = int(torch.randint(6, 21, (1,), generator=generator))
    atoms = torch.randint(0, NUM_ATOM_TYPES, (n,), generator=generator)
    bonds = []
    for child in range(1, n):
        parent = int(torch.randint(0, child, (1,), generator=generator))
        bonds.append((parent, child))
    for _ in range(int(torch.randint(0, 4, (1,), generator=generator))):
        a, b = torch.randint(0, n, (2,), generator=generator).tolist()
        if a != b:
            bonds.append((a, b))
    kinds = torch.randint(0, NUM_BOND_TYPES, (len(bonds),), generator=generator)
    src, dst = torch.tensor(bonds).t()
    edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    weights = torch.tensor([0.9, -0.6, 0.3, 1.2, -1.1, 0.1])
    polar = (weights[atoms[src]] - weights[atoms[dst]]).abs() * (1 + 0.5 * kinds)
    y = 0.25 * weights[atoms].sum() + 0.3 * polar.sum() - 0.15 * n
    return Data(x=atoms, edge_index=edge_index, edge_attr=torch.cat([kinds, kinds]), y=y.view(1))


def collate(molecules):
    """One batch in the smallest bucket that holds it; the rest is a graph of its own that nobody scores."""
    batch = Batch.from_data_list(molecules)
    nodes, edges = batch.num_nodes, batch.num_edges
    room, wires = next(b for b in BUCKETS if nodes < b[0] and edges <= b[1])
    spare = room - nodes
    return {
        "x": F.pad(batch.x, (0, spare)),
        "edge_index": F.pad(batch.edge_index, (0, wires - edges), value=room - 1),
        "edge_attr": F.pad(batch.edge_attr, (0, wires - edges)),
        "graph": F.pad(batch.batch, (0, spare), value=len(molecules)),
        "y": batch.y,
    }


class GIN(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.atom = nn.Embedding(NUM_ATOM_TYPES, hidden)
        self.bond = nn.ModuleList(nn.Embedding(NUM_BOND_TYPES, hidden) for _ in range(layers))
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for _ in range(layers):
            mlp = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
            self.convs.append(GINEConv(mlp, train_eps=True))
            self.norms.append(nn.LayerNorm(hidden))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, data):
        h = self.atom(data["x"])
        for conv, norm, bond in zip(self.convs, self.norms, self.bond):
            h = h + F.relu(norm(conv(h, data["edge_index"], bond(data["edge_attr"]))))
        graphs = len(data["y"])
        pooled = global_add_pool(h, data["graph"], size=graphs + 1)[:graphs]
        return self.head(pooled).squeeze(-1)


def run_epoch(model, loader, device, optimizer=None):
    model.train(optimizer is not None)
    total = torch.zeros((), device=device)
    graphs = 0
    for data in loader:
        data = {k: v.to(device) for k, v in data.items()}
        with torch.set_grad_enabled(optimizer is not None):
            loss = F.smooth_l1_loss(model(data), data["y"])
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.detach() * len(data["y"])
        graphs += len(data["y"])
        xm.mark_step()
    return total.item() / graphs


def main(cfg):
    torch.manual_seed(3)
    device = torch.device("xla")
    generator = torch.Generator().manual_seed(11)
    molecules = [random_molecule(generator) for _ in range(cfg.molecules)]
    mean = torch.stack([m.y for m in molecules]).mean()
    for m in molecules:
        m.y = m.y - mean
    cut = int(0.75 * cfg.molecules)
    train = DataLoader(molecules[:cut], cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    valid = DataLoader(molecules[cut:], cfg.batch_size, collate_fn=collate)

    model = GIN(cfg.hidden, cfg.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    best = float("inf")
    for epoch in range(cfg.epochs):
        start = time.time()
        train_loss = run_epoch(model, train, device, optimizer)
        valid_loss = run_epoch(model, valid, device)
        best = min(best, valid_loss)
        print(f"epoch {epoch}: train {train_loss:.4f}, valid {valid_loss:.4f}, {time.time() - start:.1f} s")
    print(f"best validation loss {best:.4f}")


if __name__ == "__main__":
    main(Config())
