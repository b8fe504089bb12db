"""Predicts link flows of a road network as the fixed point of a learned cost map (a deep equilibrium model)."""
import argparse
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.tensorboard import SummaryWriter


class RoadNetwork:
    def __init__(self, zones=6, links=24, routes=40, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.incidence = (torch.rand(routes, links, generator=g) < 0.25).float()
        self.od_of_route = torch.randint(0, zones * (zones - 1), (routes,), generator=g)
        self.pairs = zones * (zones - 1)
        self.capacity = 1.0 + 2.0 * torch.rand(links, generator=g)
        self.free_time = 0.5 + torch.rand(links, generator=g)

    def assign(self, demand, rounds=60):
        """Method of successive averages with a logit choice: the ground truth."""
        member = F.one_hot(self.od_of_route, self.pairs).float()
        flow = torch.zeros(len(demand), self.incidence.shape[1])
        for k in range(rounds):
            cost = self.free_time * (1 + 0.15 * (flow / self.capacity) ** 4)
            utility = (-(cost @ self.incidence.t())).exp()
            share = utility / (utility @ member).clamp_min(1e-9)[:, self.od_of_route]
            target = (share * demand[:, self.od_of_route]) @ self.incidence
            flow = flow + (target - flow) / (k + 2)
        return flow


class CostMap(nn.Module):
    def __init__(self, pairs, links, width):
        super().__init__()
        self.inject = nn.Linear(pairs, width)
        self.state = nn.utils.parametrizations.spectral_norm(nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, z, demand_features):
        return torch.tanh(self.norm(0.6 * self.state(z) + demand_features))


class EquilibriumModel(nn.Module):
    def __init__(self, pairs, links, width=48, max_iter=24, tol=1e-2):
        super().__init__()
        self.map = CostMap(pairs, links, width)
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, links))
        self.max_iter = max_iter
        self.tol = tol

    def solve(self, features):
        z = torch.zeros_like(features)
        for _ in range(self.max_iter):
            z_next = self.map(z, features)
            gap = (z_next - z).norm() / (z_next.norm() + 1e-6)
            z = z_next
            if gap < self.tol:
                break
        return z

    def forward(self, demand):
        features = self.map.inject(demand)
        return F.softplus(self.readout(self.solve(features)))


def relative_gap(pred, true):
    return ((pred - true).abs().sum(dim=1) / true.sum(dim=1)).mean()


def watch_training(writer, model, loss, step):
    writer.add_scalar("train/loss", loss, step)
    for name, p in model.named_parameters():
        writer.add_histogram(f"weights/{name}", p, step)
        if p.grad is not None:
            writer.add_histogram(f"gradients/{name}", p.grad, step)


def train(model, compiled, data, steps, batch, writer):
    demand, flow = data
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    running = torch.zeros(())
    for step in range(steps):
        rows = torch.randint(0, len(demand), (batch,))
        loss = F.smooth_l1_loss(compiled(demand[rows]), flow[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        watch_training(writer, model, loss, step)
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {running.item() / 50:.4f}")
            running.zero_()


@torch.no_grad()
def evaluate(model, data, batch):
    model.eval()
    demand, flow = data
    gaps = [relative_gap(model(d), f) for d, f in zip(demand.split(batch), flow.split(batch))]
    return torch.stack(gaps).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(9)

    network = RoadNetwork()
    demand = torch.rand(1280, network.pairs) ** 2
    flow = network.assign(demand)
    print(f"flows: mean {flow.mean():.2f}, most loaded link {flow.mean(0).max():.2f}")
    model = EquilibriumModel(network.pairs, flow.shape[1])
    compiled = torch.compile(model, backend="aot_eager")

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        train(model, compiled, (demand[:1024], flow[:1024]), args.steps, args.batch, writer)
        gap = evaluate(model, (demand[1024:], flow[1024:]), args.batch)
        writer.add_scalar("val/gap", gap, args.steps)
    print(f"relative gap {gap:.3f} after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
