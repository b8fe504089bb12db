"""Active learning: rounds of training on what is labeled, and labeling what the model is least sure of."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Subset, TensorDataset

CLASSES = 5


def make_pool(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(features, CLASSES, generator=g)
    x = torch.randn(n, features, generator=g)
    return x, ((x @ w).tanh() + 0.3 * torch.randn(n, CLASSES, generator=g)).argmax(1)


class Net(nn.Module):
    def __init__(self, features, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(hidden, CLASSES),
        )

    def forward(self, x):
        return self.net(x)


class Pool:
    def __init__(self, x, y, first):
        self.dataset, self.x = TensorDataset(x, y), x
        self.labeled, self.rest = list(range(first)), list(range(first, len(x)))

    def label(self, positions):
        chosen = [self.rest[p] for p in positions]
        self.labeled += chosen
        taken = set(chosen)
        self.rest = [i for i in self.rest if i not in taken]


def train(model, pool, device, epochs, batch_size):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(Subset(pool.dataset, pool.labeled), batch_size, shuffle=True, drop_last=True)
    for _ in range(epochs):
        for x, y in pl.MpDeviceLoader(loader, device):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return loss.detach()


@torch.no_grad()
def mutual_information(model, x, passes):
    """BALD: how much the dropout masks disagree about an example."""
    model.train()
    mean = torch.zeros(len(x), CLASSES, device=x.device)
    entropy = torch.zeros(len(x), device=x.device)
    for _ in range(passes):
        p = model(x).softmax(-1)
        mean += p / passes
        entropy -= (p * p.clamp(min=1e-8).log()).sum(-1) / passes
    return -(mean * mean.clamp(min=1e-8).log()).sum(-1) - entropy


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    correct = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--acquire", type=int, default=32)
    parser.add_argument("--passes", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--features", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    x, y = make_pool(1500, args.features, 4)
    test_x, test_y = x[1000:].to(device), y[1000:].to(device)
    pool = Pool(x[:1000], y[:1000], first=32)
    model = Net(args.features).to(device)
    for number in range(args.rounds):
        start = time.time()
        loss = train(model, pool, device, args.epochs, args.batch_size)
        candidates = pool.x[pool.rest].to(device)
        score = mutual_information(model, candidates, args.passes)
        pool.label(score.topk(args.acquire).indices.tolist())
        value = accuracy(model, test_x, test_y)
        print(f"round {number}: {len(pool.labeled)} labeled, loss {loss.item():.3f}, accuracy {value:.3f}, {time.time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
