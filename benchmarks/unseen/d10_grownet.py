"""Gradient boosting with small networks on tabular data: each round fits one more network to what the others leave."""
import argparse
import logging

import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("boost")


def make_table(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, features, generator=g)
    y = 10 * torch.sin(3.1 * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, (y + 0.3 * torch.randn(n, generator=g) - 14) / 5


class Weak(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Boosted:
    def __init__(self, features, hidden, rate, device):
        self.features, self.hidden, self.rate, self.device = features, hidden, rate, device
        self.learners = []

    @torch.no_grad()
    def predict(self, x):
        total = torch.zeros(len(x), device=x.device)
        for learner in self.learners:
            total = total + self.rate * learner(x)
        return total

    def fit_round(self, loader, epochs):
        learner = Weak(self.features, self.hidden).to(self.device)
        optimizer = torch.optim.SGD(learner.parameters(), lr=0.1, momentum=0.9)
        for _ in range(epochs):
            for x, y in pl.MpDeviceLoader(loader, self.device):
                residual = y - self.predict(x)
                loss = (learner(x) - residual).square().mean()
                optimizer.zero_grad()
                loss.backward()
                for parameter in learner.parameters():
                    nn.utils.clip_grad_value_(parameter, 1.0)
                xm.mark_step()
                xm.optimizer_step(optimizer, barrier=True)
        self.learners.append(learner.eval().requires_grad_(False))
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=256)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(TensorDataset(*make_table(256 * 6, args.features, 0)), args.batch_size, shuffle=True, drop_last=True)
    test_x, test_y = (t.to(device) for t in make_table(512, args.features, 1))
    test_prediction = torch.zeros_like(test_y)
    boosted = Boosted(args.features, args.hidden, 0.6, device)
    for index in range(args.rounds):
        loss = boosted.fit_round(train, args.epochs)
        with torch.no_grad():
            test_prediction = test_prediction + boosted.rate * boosted.learners[-1](test_x)
            error = (test_prediction - test_y).square().mean().sqrt()
        torch_xla.sync()
        log.info("round %d: last training loss %.3f, test RMSE %.3f", index, loss.item(), error.item())


if __name__ == "__main__":
    main()
