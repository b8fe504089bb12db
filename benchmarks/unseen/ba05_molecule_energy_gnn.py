import torch_xla
import torch_xla.core.xla_model as xm

import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

MAX_NODES = 160
SETTINGS = {"batch": 8, "hidden": 32, "layers": 2, "epochs": 6, "lr": 3e-2, "edge_multiple": 24}


def make_molecule(rng):
    n = rng.randint(8, 18)
    bonds = [(i, rng.randrange(i)) for i in range(1, n)]
    bonds += [tuple(rng.sample(range(n), 2)) for _ in range(rng.randint(0, 5))]
    kinds = [rng.randrange(5) for _ in range(n)]
    energy = sum(0.3 * k for k in kinds) / n + 0.1 * len(bonds) / n
    return kinds, bonds, energy


def round_up(n, multiple):
    return (n + multiple - 1) // multiple * multiple


class Collate:
    def __init__(self, batch, edge_multiple):
        self.batch = batch
        self.edge_multiple = edge_multiple

    def __call__(self, molecules):
        kinds = torch.full((MAX_NODES,), 5, dtype=torch.long)
        owner = torch.full((MAX_NODES,), self.batch, dtype=torch.long)
        source, target, energy, offset = [], [], [], 0
        for i, (k, bonds, e) in enumerate(molecules):
            kinds[offset:offset + len(k)] = torch.tensor(k)
            owner[offset:offset + len(k)] = i
            for a, b in bonds:
                source += [offset + a, offset + b]
                target += [offset + b, offset + a]
            energy.append(e)
            offset += len(k)
        spare = round_up(len(source), self.edge_multiple) - len(source)
        source += [MAX_NODES - 1] * spare
        target += [MAX_NODES - 1] * spare
        return kinds, torch.tensor([source, target]), owner, torch.tensor(energy)


class MessageLayer(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.SiLU())
        self.update = nn.GRUCell(hidden, hidden)

    def forward(self, h, edges):
        m = self.message(torch.cat([h[edges[0]], h[edges[1]]], -1))
        pooled = torch.zeros_like(h).index_add(0, edges[1], m)
        return self.update(pooled, h)


class EnergyModel(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.embed = nn.Embedding(6, hidden)
        self.layers = nn.ModuleList(MessageLayer(hidden) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def readout(self, h, owner):
        graphs = int(owner.max()) + 1
        total = h.new_zeros(graphs, h.size(1)).index_add(0, owner, h)
        count = h.new_zeros(graphs).index_add(0, owner, torch.ones_like(h[:, 0]))
        return (total / count.clamp(min=1).unsqueeze(1))[:-1]

    def forward(self, kinds, edges, owner):
        h = self.embed(kinds)
        for layer in self.layers:
            h = layer(h, edges)
        return self.out(self.readout(h, owner)).squeeze(-1)


def main():
    rng = random.Random(5)
    torch.manual_seed(5)
    device = torch.device("xla")
    molecules = [make_molecule(rng) for _ in range(320)]
    collate = Collate(SETTINGS["batch"], SETTINGS["edge_multiple"])
    loader = DataLoader(molecules[:256], SETTINGS["batch"], shuffle=True, drop_last=True, collate_fn=collate)
    held_out = DataLoader(molecules[256:], SETTINGS["batch"], collate_fn=collate)
    model = EnergyModel(SETTINGS["hidden"], SETTINGS["layers"]).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=SETTINGS["lr"])
    for epoch in range(SETTINGS["epochs"]):
        running = torch.zeros((), device=device)
        for kinds, edges, owner, energy in loader:
            predicted = model(kinds.to(device), edges.to(device), owner.to(device))
            loss = (predicted - energy.to(device)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.detach()
            xm.mark_step()
        print(f"epoch {epoch} mse {running.item() / len(loader):.4f}")
    model.eval()
    error = torch.zeros((), device=device)
    with torch.no_grad():
        for kinds, edges, owner, energy in held_out:
            error += (model(kinds.to(device), edges.to(device), owner.to(device)) - energy.to(device)).abs().mean()
            xm.mark_step()
    print(f"held-out mae {error.item() / len(held_out):.4f}")


if __name__ == "__main__":
    main()
