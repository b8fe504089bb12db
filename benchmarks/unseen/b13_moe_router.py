"""Mixture of experts on tabular rows, top-1 routing, balance loss."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, dim, hidden, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        gate, choice = probs.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (choice == i).nonzero().squeeze(1)
            y = expert(x[rows]) * gate[rows, None]
            out = out.index_add(0, rows, y)
        share = F.one_hot(choice, len(self.experts)).float().mean(0)
        balance = len(self.experts) * (share * probs.mean(0)).sum()
        return x + out, balance


class Net(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.moe = MoE(dim, 16, experts)
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        h, balance = self.moe(x)
        return self.head(h).squeeze(-1), balance


def rows(n, dim):
    x = torch.randn(n, dim)
    return x, torch.where(x[:, 0] > 0, x[:, 1], -x[:, 2])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=8)
    p.add_argument("--experts", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=12)
    args = p.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    model = Net(args.dim, args.experts).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    average = torch.zeros((), device=device)
    for step in range(args.steps):
        x, y = (t.to(device) for t in rows(args.batch, args.dim))
        pred, balance = model(x)
        loss = F.mse_loss(pred, y) + 0.01 * balance
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.mul_(0.9).add_(loss.detach(), alpha=0.1)
        torch_xla.sync()
    print(f"loss {average.item():.4f}")


if __name__ == "__main__":
    main()
