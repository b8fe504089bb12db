"""Graph regression with torch_geometric: molecule-like trees with rings, batches padded to a few sizes.

Padding nodes live in a dummy graph (the last one) that the loss leaves out, so that the compiled
train step sees only a handful of shapes.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, global_add_pool

ATOMS, BONDS = 6, 3
NODE_BUCKETS = (320, 384)
GRAPHS = 24


def molecule(rng):
    n = int(torch.randint(8, 18, (1,), generator=rng))
    parent = [int(torch.randint(max(0, i - 3), i, (1,), generator=rng)) for i in range(1, n)]
    src, dst = list(range(1, n)), parent
    if n > 12:
        src, dst = src + [0], dst + [n - 1]
    edge = torch.tensor([src + dst, dst + src])
    bond = torch.randint(0, BONDS, (len(src),), generator=rng).repeat(2)
    atom = torch.randint(0, ATOMS, (n,), generator=rng)
    degree = torch.bincount(edge[0], minlength=n).float()
    y = (degree * (atom == 2)).sum() * 0.4 + (bond == 1).sum() * 0.15 - 0.1 * n
    return Data(x=atom, edge_index=edge, edge_attr=bond, y=y.view(1))


class Gin(nn.Module):
    def __init__(self, width=48, layers=3):
        super().__init__()
        self.atom = nn.Embedding(ATOMS + 1, width)
        self.bond = nn.Embedding(BONDS + 1, width)
        self.convs = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
            for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        h, e = self.atom(x), self.bond(edge_attr)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(norm(conv(h, edge_index, e)))
        return self.out(global_add_pool(h, batch, size=GRAPHS + 1))[:GRAPHS, 0]


def pad(batch):
    """Fill nodes up to the bucket and edges up to twice and a bit the nodes; both belong to a dummy graph."""
    n, m = batch.num_nodes, batch.num_edges
    bucket = next(b for b in NODE_BUCKETS if b > n)
    edges = 2 * bucket + 64
    x = F.pad(batch.x, (0, bucket - n), value=ATOMS)
    edge_index = F.pad(batch.edge_index, (0, edges - m), value=bucket - 1)
    edge_attr = F.pad(batch.edge_attr, (0, edges - m), value=BONDS)
    which = F.pad(batch.batch, (0, bucket - n), value=GRAPHS)
    return x, edge_index, edge_attr, which, batch.y


def collate(graphs, order):
    for i in range(0, len(order) - GRAPHS + 1, GRAPHS):
        yield pad(Batch.from_data_list([graphs[j] for j in order[i:i + GRAPHS].tolist()]))


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(4)
    train = [molecule(rng) for _ in range(1200)]
    test = [molecule(rng) for _ in range(GRAPHS * 8)]
    mean = torch.cat([d.y for d in train]).mean()
    std = torch.cat([d.y for d in train]).std()
    model = Gin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    @torch.compile(backend="aot_eager", dynamic=False)
    def objective(x, edge_index, edge_attr, which, y):
        return F.smooth_l1_loss(model(x, edge_index, edge_attr, which), (y - mean) / std)

    test_batches = list(collate(test, torch.arange(len(test))))
    for epoch in range(9):
        losses = []
        for x, edge_index, edge_attr, which, y in collate(train, torch.randperm(len(train), generator=rng)):
            loss = objective(x, edge_index, edge_attr, which, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.no_grad():
            err = [(model(*b[:4]) * std + mean - b[4]).abs() for b in test_batches]
        if epoch % 2 == 0:
            print(f"epoch {epoch:2d}  loss {torch.stack(losses).mean().item():.4f}  test MAE {torch.cat(err).mean().item():.3f}")


if __name__ == "__main__":
    main()
