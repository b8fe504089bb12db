"""Federated averaging over clients that hold different amounts of data, on an XLA device."""
import torch_xla
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Plan:
    clients: int = 12
    rounds: int = 3
    per_round: int = 6
    local_epochs: int = 2
    batch: int = 32
    lr: float = 0.1
    features: int = 20
    classes: int = 4


class Client:
    def __init__(self, number, plan, truth):
        gen = torch.Generator().manual_seed(100 + number)
        size = int(torch.randint(70, 150, (1,), generator=gen))
        shift = 0.5 * torch.randn(plan.features, generator=gen)
        x = torch.randn(size, plan.features, generator=gen) + shift
        y = (torch.relu(x) @ truth).argmax(1)
        self.number, self.size = number, size
        self.loader = DataLoader(TensorDataset(x, y), batch_size=plan.batch, shuffle=True)

    def train(self, model, plan, device):
        opt = torch.optim.SGD(model.parameters(), lr=plan.lr)
        total = torch.zeros((), device=device)
        for _ in range(plan.local_epochs):
            for x, y in self.loader:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.detach() / len(self.loader)
                xm.mark_step()
        return total / plan.local_epochs


def network(plan):
    return nn.Sequential(nn.Linear(plan.features, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, plan.classes))


class Server:
    def __init__(self, plan, device):
        self.plan, self.device = plan, device
        self.model = network(plan).to(device)
        self.worker = network(plan).to(device)
        self.gen = torch.Generator().manual_seed(7)

    def choose(self, clients):
        order = torch.randperm(len(clients), generator=self.gen)[: self.plan.per_round]
        return [clients[i] for i in order.tolist()]

    @torch.no_grad()
    def spread(self):
        for mine, theirs in zip(self.worker.parameters(), self.model.parameters()):
            mine.copy_(theirs)

    @torch.no_grad()
    def merge(self, collected, weights):
        share = torch.tensor(weights) / sum(weights)
        share = share.to(self.device)
        for i, p in enumerate(self.model.parameters()):
            stacked = torch.stack([c[i] for c in collected])
            p.copy_((stacked * share.view(-1, *[1] * p.dim())).sum(0))
        xm.mark_step()

    def round(self, clients):
        collected, weights, losses = [], [], []
        for client in self.choose(clients):
            self.spread()
            xm.mark_step()
            losses.append(client.train(self.worker, self.plan, self.device))
            collected.append([p.detach().clone() for p in self.worker.parameters()])
            weights.append(float(client.size))
            xm.mark_step()
        self.merge(collected, weights)
        return torch.stack(losses).mean()

    @torch.no_grad()
    def accuracy(self, x, y):
        return (self.model(x.to(self.device)).argmax(1).cpu() == y).float().mean().item()


def main():
    plan, device = Plan(), xm.xla_device()
    torch.manual_seed(0)
    truth = torch.randn(plan.features, plan.classes)
    clients = [Client(i, plan, truth) for i in range(plan.clients)]
    x = torch.randn(256, plan.features)
    y = (torch.relu(x) @ truth).argmax(1)
    server = Server(plan, device)
    for r in range(plan.rounds):
        loss = server.round(clients)
        print(f"round {r}: client loss {loss.item():.3f}, global accuracy {server.accuracy(x, y):.3f}")


if __name__ == "__main__":
    main()
