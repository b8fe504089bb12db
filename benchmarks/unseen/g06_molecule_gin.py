"""Graph regression on small molecules with an own GIN on xla."""
import random
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

ELEMENTS = 7


def molecule(rng):
    """A random tree of atoms with one ring closure."""
    n = rng.choice((9, 9, 9, 9, 9, 13))
    edges = [(i, rng.randrange(max(0, i - 3), i)) for i in range(1, n)]
    edges.append((n - 1, n - 5))
    both = edges + [(b, a) for a, b in edges]
    kinds = torch.tensor([rng.randrange(ELEMENTS) for _ in range(n)])
    y = kinds.float().mean() * 0.3 + 0.1 * len(edges) / n
    return SimpleNamespace(x=F.one_hot(kinds, ELEMENTS).float(), edge_index=torch.tensor(both).t().contiguous(), y=y.view(1))


def merge(mols):
    """Many molecules as one graph with parts that do not touch."""
    x, y, edges, owner, base = [], [], [], [], 0
    for k, m in enumerate(mols):
        x.append(m.x)
        y.append(m.y)
        edges.append(m.edge_index + base)
        owner.append(torch.full((m.x.shape[0],), k))
        base += m.x.shape[0]
    return torch.cat(x), torch.cat(edges, 1), torch.cat(owner), torch.cat(y)


class GINConv(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, h, edge_index):
        src, dst = edge_index
        agg = torch.zeros_like(h).index_add(0, dst, h.index_select(0, src))
        return self.net((1 + self.eps) * h + agg)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))


class GIN(nn.Module):
    def __init__(self, hidden=32, layers=2):
        super().__init__()
        sizes = [ELEMENTS] + [hidden] * layers
        self.convs = nn.ModuleList(GINConv(mlp(a, b)) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(hidden, 1)

    def forward(self, h, edge_index, owner, graphs):
        for conv in self.convs:
            h = torch.relu(conv(h, edge_index))
        pooled = h.new_zeros(graphs, h.shape[1]).index_add(0, owner, h)
        return self.head(pooled).squeeze(-1)


class BestKeeper:
    """Keeps the lowest smoothed loss and says when to give up."""

    def __init__(self, patience):
        self.best, self.smooth, self.bad, self.patience = float("inf"), None, 0, patience

    def enough(self, loss):
        value = float(loss)
        self.smooth = value if self.smooth is None else 0.9 * self.smooth + 0.1 * value
        if self.smooth < self.best - 1e-4:
            self.best, self.bad = self.smooth, 0
        else:
            self.bad += 1
        return self.bad > self.patience


def main(steps=60, batch=16):
    torch.manual_seed(4)
    rng = random.Random(4)
    mols = [molecule(rng) for _ in range(batch * steps)]
    loader = torch.utils.data.DataLoader(mols, batch, shuffle=True, drop_last=True, collate_fn=merge)
    device = torch_xla.device()
    model = GIN().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    keeper = BestKeeper(patience=500)
    for step, parts in enumerate(loader, 1):
        x, edges, owner, y = (p.to(device) for p in parts)
        loss = F.mse_loss(model(x, edges, owner, batch), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch_xla.sync()
        if keeper.enough(loss.detach()):
            print("stopped at", step)
            break
        if step % 30 == 0:
            print(f"step {step} best {keeper.best:.4f}")


if __name__ == "__main__":
    main()
