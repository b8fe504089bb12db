"""Graph-level regression on random geometric graphs with torch_geometric."""
import math

import torch
import torch.nn as nn
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool, global_mean_pool


class AddEdgeFeatures:
    """Relative positions, expanded in radial basis functions."""

    def __init__(self, bins=8, cutoff=0.45):
        self.centers = [cutoff * i / (bins - 1) for i in range(bins)]

    def __call__(self, data):
        rows = []
        for a, b in data.edge_index.t().tolist():
            pa, pb = data.pos[a].tolist(), data.pos[b].tolist()
            d = math.dist(pa, pb)
            rows.append([math.exp(-40 * (d - c) ** 2) for c in self.centers])
        out = data.clone()
        out.edge_weight = torch.tensor(rows).mean(-1)
        return out


class GeometricGraphs(InMemoryDataset):
    def __init__(self, n, nodes=24, k=6, seed=0, transform=None):
        super().__init__(None, transform)
        g = torch.Generator().manual_seed(seed)
        items = []
        for _ in range(n):
            pos = torch.rand(nodes, 2, generator=g)
            dist = torch.cdist(pos, pos) + 10 * torch.eye(nodes)
            near = dist.topk(k, largest=False).indices
            edge = torch.stack([near.flatten(), torch.arange(nodes).repeat_interleave(k)])
            y = dist.min(1).values.mean().view(1) * 10
            items.append(Data(pos=pos, x=torch.cat([pos, torch.ones(nodes, 1)], 1), edge_index=edge, y=y))
        self.data, self.slices = self.collate(items)


class GraphRegressor(nn.Module):
    def __init__(self, width=48, layers=3):
        super().__init__()
        self.inp = nn.Linear(3, width)
        self.convs = nn.ModuleList(GraphConv(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x, edge_index, edge_weight, batch, graphs):
        h = self.inp(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + torch.relu(conv(norm(h), edge_index, edge_weight))
        pooled = torch.cat([global_mean_pool(h, batch, graphs), global_add_pool(h, batch, graphs) / 24], -1)
        return self.out(pooled).squeeze(-1)


def run_epoch(model, loader, opt=None):
    total, n = torch.zeros(()), 0
    for data in loader:
        with torch.set_grad_enabled(opt is not None):
            pred = model(data.x, data.edge_index, data.edge_weight, data.batch, data.num_graphs)
            loss = nn.functional.mse_loss(pred, data.y)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.detach()
        n += 1
    return (total / n).item()


def main():
    torch.manual_seed(0)
    features = AddEdgeFeatures()
    train_set = GeometricGraphs(256, transform=features)
    test_set = GeometricGraphs(64, seed=1, transform=features)
    train = DataLoader(train_set, batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(test_set, batch_size=16)
    model = GraphRegressor()
    compiled = torch.compile(model, backend="aot_eager")
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3)
    for epoch in range(8):
        loss = run_epoch(compiled, train, opt)
        sched.step(loss)
        if epoch % 4 == 3:
            model.eval()
            val = run_epoch(model, test)
            model.train()
            print(f"epoch {epoch} train {loss:.4f} test {val:.4f}", flush=True)


if __name__ == "__main__":
    main()
