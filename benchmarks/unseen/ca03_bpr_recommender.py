"""Bayesian personalised ranking on implicit feedback, with a smoothed loss for the console."""
import argparse
import time
from collections import deque

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


class Interactions:
    def __init__(self, users, items, per_user, seed=0):
        rng = np.random.default_rng(seed)
        self.users, self.items = users, items
        taste = rng.normal(size=(users, 6))
        style = rng.normal(size=(items, 6))
        score = taste @ style.T + rng.gumbel(size=(users, items))
        self.liked = np.argsort(-score, axis=1)[:, :per_user]

    def sample(self, n, rng):
        u = rng.integers(0, self.users, n)
        pos = self.liked[u, rng.integers(0, self.liked.shape[1] - 2, n)]
        neg = rng.integers(0, self.items, n)
        return [torch.from_numpy(a.astype(np.int64)) for a in (u, pos, neg)]

    def holdout(self):
        return torch.arange(self.users), torch.from_numpy(self.liked[:, -2:].copy())


class Factors(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.bias = nn.Embedding(items, 1)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def forward(self, u, pos, neg):
        return self.score(u, pos) - self.score(u, neg)


class Meter:
    """Keeps recent losses; the value is their mean."""

    def __init__(self, window):
        self.values = deque(maxlen=window)
        self.mean = None

    def push(self, value):
        self.values.append(value.detach())
        self.mean = torch.stack(tuple(self.values)).mean()

    def read(self):
        return self.mean.item()


@torch.no_grad()
def recall_at(model, data, k, device):
    users, held = data.holdout()
    scores = model.user(users.to(device)) @ model.item.weight.T + model.bias.weight.T
    top = scores.topk(k, dim=-1).indices
    hit = (top[:, :, None] == held.to(device)[:, None, :]).any(-1).sum()
    torch_xla.sync()
    return hit.item() / held.numel()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--dim", type=int, default=24)
    p.add_argument("--window", type=int, default=12)
    p.add_argument("--log-every", type=int, default=20)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    device = torch_xla.device()
    data = Interactions(200, 300, 14)
    model = Factors(data.users, data.items, args.dim).to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    meter = Meter(args.window)
    start = time.time()
    for step in range(1, args.steps + 1):
        u, pos, neg = (t.to(device) for t in data.sample(args.batch, rng))
        margin = model(u, pos, neg)
        reg = sum(e.weight.pow(2).mean() for e in (model.user, model.item))
        loss = -F.logsigmoid(margin).mean() + 1e-3 * reg
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter.push(loss)
        torch_xla.sync()
        if step % args.log_every == 0:
            print(f"{step:5d} loss {meter.read():.4f} {time.time() - start:.1f}s", flush=True)
    print("recall@20", round(recall_at(model, data, 20, device), 3))


if __name__ == "__main__":
    main()
