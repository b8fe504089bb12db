"""Predict a strain energy of random small molecules from their 3-D coordinates (torch_geometric, compiled)."""
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_add_pool

torch.manual_seed(3)
random.seed(3)
CUTOFF, N_RBF, ELEMENTS = 2.2, 10, 5


def random_molecule():
    n = random.randint(7, 16)
    pos = [torch.zeros(3)]
    while len(pos) < n:
        step = torch.randn(3)
        pos.append(random.choice(pos) + 1.4 * step / step.norm())
    return torch.randint(0, ELEMENTS, (n,)), torch.stack(pos)


def energy(z, pos):
    d = torch.cdist(pos, pos) + 10 * torch.eye(len(z))
    charge = torch.tensor([0.3, -0.4, 0.2, -0.1, 0.5])[z]
    pair = 0.6 * torch.exp(-d) + charge[:, None] * charge[None, :] / d
    return 0.5 * pair.sum()


class MoleculeSet(torch.utils.data.Dataset):
    """Molecules as graphs: an edge between atoms nearer than the cutoff, Gaussian features of the distance."""

    def __init__(self, count):
        self.raw = [random_molecule() for _ in range(count)]
        y = torch.stack([energy(z, p) for z, p in self.raw])
        self.y = (y - y.mean()) / y.std()

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, i):
        z, pos = self.raw[i]
        src, dst, feats = [], [], []
        for a in range(len(z)):
            for b in range(len(z)):
                if a == b:
                    continue
                r = float((pos[a] - pos[b]).norm())
                if r < CUTOFF:
                    src.append(a)
                    dst.append(b)
                    feats.append([pow(2.718, -8.0 * (r - k * CUTOFF / N_RBF) ** 2) for k in range(N_RBF)])
        return Data(z=z, edge_index=torch.tensor([src, dst]), edge_attr=torch.tensor(feats),
                    y=self.y[i].view(1), num_nodes=len(z))


class ContinuousConv(MessagePassing):
    def __init__(self, dim):
        super().__init__(aggr="add")
        self.filter = nn.Sequential(nn.Linear(N_RBF, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.update_mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, x, edge_index, edge_attr):
        return x + self.update_mlp(self.propagate(edge_index, x=x, w=self.filter(edge_attr)))

    def message(self, x_j, w):
        return x_j * w


class EnergyNet(nn.Module):
    def __init__(self, dim=64, layers=2):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, dim)
        self.convs = nn.ModuleList([ContinuousConv(dim) for _ in range(layers)])
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, z, edge_index, edge_attr, batch, num_graphs: int):
        x = self.embed(z)
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr)
        return global_add_pool(self.head(x), batch, size=num_graphs).squeeze(-1)


def run_epoch(net, loader, opt=None):
    total, count = torch.zeros(()), 0
    for b in loader:
        pred = net(b.z, b.edge_index, b.edge_attr, b.batch, b.num_graphs)
        loss = F.smooth_l1_loss(pred, b.y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        total += loss.detach() * b.num_graphs
        count += b.num_graphs
    return (total / count).item()


def main():
    train = DataLoader(MoleculeSet(480), batch_size=48, shuffle=True, drop_last=True)
    valid = DataLoader(MoleculeSet(96), batch_size=48)
    net = EnergyNet()
    print(f"{sum(p.numel() for p in net.parameters())} parameters")
    compiled = torch.compile(net, backend="aot_eager", dynamic=False)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(6):
        t0 = time.perf_counter()
        compiled.train()
        tr = run_epoch(compiled, train, opt)
        compiled.eval()
        with torch.no_grad():
            va = run_epoch(compiled, valid)
        print(f"epoch {epoch}  train {tr:.4f}  valid {va:.4f}  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
