"""Federated training (FedAdam) on heart-rate windows that stay on their owners' watches."""
from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional as F

import torch_xla
import torch_xla.core.xla_model as xm

FEATURES, ACTIVITIES = 24, 4


class Watch:
    """One participant: a private set of windows, with a body of its own."""

    def __init__(self, ident, device):
        g = torch.Generator().manual_seed(100 + ident)
        self.n = int(24 + 16 * torch.randint(0, 5, (1,), generator=g))
        prototypes = torch.randn(ACTIVITIES, FEATURES, generator=torch.Generator().manual_seed(1))
        y = torch.randint(0, ACTIVITIES, (self.n,), generator=g)
        offset = 0.5 * torch.randn(FEATURES, generator=g)
        x = prototypes[y] + offset + 0.7 * torch.randn(self.n, FEATURES, generator=g)
        self.x, self.y = x.to(device), y.to(device)

    def train(self, model, local_steps, lr):
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
        for _ in range(local_steps):
            opt.zero_grad()
            F.cross_entropy(model(self.x), self.y).backward()
            opt.step()
            torch_xla.sync()
        return model


class ActivityNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.GELU(),
                                 nn.Linear(width, width), nn.GELU(), nn.Linear(width, ACTIVITIES))

    def forward(self, x):
        return self.net(x)


class FedAdam:
    """Adam on the server, with the mean change of the clients as its gradient (Reddi et al. 2021)."""

    def __init__(self, model, lr=0.02, betas=(0.9, 0.98), tau=1e-3):
        device = next(model.parameters()).device
        self.params = list(model.parameters())
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.full_like(p, tau ** 2) for p in self.params]
        self.betas = torch.tensor(betas, device=device)
        self.lr, self.tau = lr, tau
        self.round = 0

    @torch.no_grad()
    def step(self, deltas):
        self.round += 1
        b1, b2 = self.betas
        bias1, bias2 = 1 - self.betas ** self.round
        for p, m, v, d in zip(self.params, self.m, self.v, deltas):
            m.copy_(b1 * m + (1 - b1) * d)
            v.copy_(b2 * v + (1 - b2) * d * d)
            p.add_(self.lr * (m / bias1) / ((v / bias2).sqrt() + self.tau))


@torch.no_grad()
def difference(client, server):
    return [c - s for c, s in zip(client.parameters(), server.parameters())]


def federated_round(server, watches, optimizer, local_steps, lr):
    total = None
    weight = sum(w.n for w in watches)
    for w in watches:
        client = w.train(deepcopy(server), local_steps, lr)
        share = [d * (w.n / weight) for d in difference(client, server)]
        total = share if total is None else [a + b for a, b in zip(total, share)]
        torch_xla.sync()
    optimizer.step(total)
    torch_xla.sync()


@torch.no_grad()
def accuracy(model, watches):
    """Over all held-out participants, one vector each."""
    hits = sum((model(w.x).argmax(1) == w.y).sum() for w in watches)
    return hits.item() / sum(w.n for w in watches)


def main():
    torch.manual_seed(12)
    device = torch_xla.device()
    watches = [Watch(i, device) for i in range(14)]
    held_out = [Watch(50 + i, device) for i in range(4)]
    server = ActivityNet().to(device)
    optimizer = FedAdam(server)
    torch_xla.sync()
    print("windows per watch:", [w.n for w in watches])
    g = torch.Generator().manual_seed(3)
    for rnd in range(10):
        chosen = [watches[i] for i in torch.randperm(len(watches), generator=g)[:6].tolist()]
        federated_round(server, chosen, optimizer, local_steps=5, lr=0.05)
        if rnd % 5 == 4:
            print(f"round {rnd + 1:2d}  accuracy {accuracy(server, held_out):.3f}", flush=True)


if __name__ == "__main__":
    main()
