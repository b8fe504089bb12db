# Predict the critical-path delay of small gate-level netlists with a GNN (torch_geometric) on XLA.
import argparse
import math
import time

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool, global_max_pool
from torch_geometric.transforms import BaseTransform, Compose

GATES = {"nand": 1.0, "nor": 1.2, "xor": 2.1, "inv": 0.5, "buf": 0.7, "ff": 3.0}
DRIVE = torch.tensor(list(GATES.values()))


def random_netlist(generator):
    """A layered DAG of gates. The delay is the longest path, where a gate with many loads is slower."""
    n = int(torch.randint(14, 30, (1,), generator=generator))
    kind = torch.randint(0, len(GATES), (n,), generator=generator)
    sources, sinks = [], []
    for sink in range(2, n):
        for source in torch.randperm(sink, generator=generator)[:2].tolist():
            sources.append(source)
            sinks.append(sink)
    edges = torch.tensor([sources, sinks])
    load = torch.bincount(edges[0], minlength=n)
    cost = DRIVE[kind] * (1 + 0.15 * load)
    arrival = cost.clone()
    for source, sink in zip(sources, sinks):
        arrival[sink] = max(arrival[sink], arrival[source] + cost[sink])
    return Data(kind=kind, edge_index=edges, delay=arrival.max().view(1) / 10, num_nodes=n)


class FanOut(BaseTransform):
    def forward(self, data):
        out = torch.bincount(data.edge_index[0], minlength=data.num_nodes)
        into = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
        data.degree = torch.stack([out, into], dim=1).float().log1p()
        return data


class Level(BaseTransform):
    """How many gates lie before a gate, at most."""

    def forward(self, data):
        level = torch.zeros(data.num_nodes)
        for source, sink in data.edge_index.t():
            level[sink] = torch.maximum(level[sink], level[source] + 1)
        data.degree = torch.cat([data.degree, level[:, None] / 10], dim=1)
        return data


class PadTo(BaseTransform):
    """All netlists of one size: idle gates at the end, which have no wires but a last pair's loop."""

    def __init__(self, nodes, edges):
        self.nodes, self.edges = nodes, edges

    def forward(self, data):
        n, e = data.num_nodes, data.edge_index.shape[1]
        data.kind = F.pad(data.kind, (0, self.nodes - n))
        data.degree = F.pad(data.degree, (0, 0, 0, self.nodes - n))
        data.alive = (torch.arange(self.nodes) < n).float()
        data.edge_index = F.pad(data.edge_index, (0, self.edges - e), value=self.nodes - 1)
        data.num_nodes = self.nodes
        return data


class DelayNet(torch.nn.Module):
    def __init__(self, width=32, rounds=4):
        super().__init__()
        self.kind = torch.nn.Embedding(len(GATES), width)
        self.degree = torch.nn.Linear(3, width)
        self.rounds = torch.nn.ModuleList(GraphConv(width, width, aggr="add") for _ in range(rounds))
        self.head = torch.nn.Sequential(torch.nn.Linear(2 * width, width), torch.nn.SiLU(), torch.nn.Linear(width, 1))

    def forward(self, batch):
        alive = batch.alive[:, None]
        h = (self.kind(batch.kind) + self.degree(batch.degree)) * alive
        for conv in self.rounds:
            h = h + F.silu(conv(h, batch.edge_index)) * alive
        summary = torch.cat([global_add_pool(h, batch.batch) / 30, global_max_pool(h, batch.batch)], dim=1)
        return self.head(summary).squeeze(-1)


def run_epoch(model, loader, device, optimizer=None):
    losses = []
    with torch.set_grad_enabled(optimizer is not None):
        for batch in loader:
            batch = batch.to(device)
            loss = F.smooth_l1_loss(model(batch), batch.delay)
            if optimizer is not None:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
            xm.mark_step()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--netlists", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(9)
    prepare = Compose([FanOut(), Level(), PadTo(nodes=30, edges=56)])
    netlists = [random_netlist(generator) for _ in range(args.netlists + 64)]

    class Netlists(torch.utils.data.Dataset):
        def __init__(self, part):
            self.part = part

        def __len__(self):
            return len(self.part)

        def __getitem__(self, i):
            return prepare(self.part[i].clone())

    train_loader = DataLoader(Netlists(netlists[:args.netlists]), batch_size=args.batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(Netlists(netlists[args.netlists:]), batch_size=args.batch)

    device = torch.device("xla")
    model = DelayNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    for epoch in range(args.epochs):
        started = time.time()
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + math.cos(math.pi * epoch / args.epochs))
        train_loss = run_epoch(model, train_loader, device, optimizer)
        test_loss = run_epoch(model, test_loader, device)
        print(f"epoch {epoch}: train {train_loss:.4f} test {test_loss:.4f} in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
