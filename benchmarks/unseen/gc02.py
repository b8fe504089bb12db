"""Two-tower retrieval with in-batch softmax on a long-tailed synthetic catalogue."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--users", type=int, default=20_000)
    p.add_argument("--items", type=int, default=200_000)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--eval-users", type=int, default=400)
    p.add_argument("--lr", type=float, default=5e-3)
    return p.parse_args()


def synth(args, rng):
    """Users belong to tastes; each taste prefers a slice of the catalogue."""
    tastes = 50
    taste = rng.integers(0, tastes, args.users)
    per = args.items // tastes
    n = args.batch * args.steps
    u = rng.integers(0, args.users, n)
    rank = np.minimum((rng.pareto(1.1, n) * 20).astype(np.int64), per - 1)
    i = taste[u] * per + rank
    held_u = rng.choice(args.users, args.eval_users, replace=False)
    held = [np.unique(taste[x] * per + np.minimum((rng.pareto(1.1, 5) * 20).astype(np.int64), per - 1))
            for x in held_u]
    return torch.from_numpy(u), torch.from_numpy(i), torch.from_numpy(held_u), held


class Tower(nn.Module):
    def __init__(self, dim, hidden=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.LayerNorm(hidden),
                                 nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x):
        return F.normalize(x + self.net(x), dim=-1)


class Retrieval(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.user = nn.Embedding(args.users, args.dim)
        self.item = nn.Embedding(args.items, args.dim)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        self.user_tower = torch.compile(Tower(args.dim))
        self.item_tower = torch.compile(Tower(args.dim))
        self.log_temp = nn.Parameter(torch.tensor(2.5))

    def loss(self, u, i, log_q):
        a, b = self.user_tower(self.user(u)), self.item_tower(self.item(i))
        logits = a @ b.t() * self.log_temp.exp() - log_q
        same = i.unsqueeze(0) == i.unsqueeze(1)
        same.fill_diagonal_(False)
        return F.cross_entropy(logits.masked_fill(same, -1e4), torch.arange(len(u)))


@torch.no_grad()
def catalogue(model, chunk=30_000):
    return torch.cat([model.item_tower(w) for w in model.item.weight.split(chunk)])


@torch.no_grad()
def evaluate(model, users, held, k=20):
    items = catalogue(model)
    vecs = model.user_tower(model.user(users))
    recall, ndcg = 0.0, 0.0
    for row in range(len(users)):
        scores = items @ vecs[row]
        order = torch.argsort(scores, descending=True)
        top = order[:k]
        hit = torch.isin(top, torch.from_numpy(held[row]))
        gain = (hit / torch.log2(torch.arange(k) + 2.0)).sum()
        ideal = (1 / torch.log2(torch.arange(min(k, len(held[row]))) + 2.0)).sum()
        recall += hit.sum().item() / len(held[row])
        ndcg += (gain / ideal).item()
    return recall / len(users), ndcg / len(users)


def main():
    args = parse()
    torch.manual_seed(0)
    users, items, held_u, held = synth(args, np.random.default_rng(0))
    freq = torch.bincount(items, minlength=args.items).float().clamp_min(1) / len(items)
    model = Retrieval(args)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    t0 = time.perf_counter()
    total = torch.zeros(())
    for step in range(args.steps):
        s = slice(step * args.batch, (step + 1) * args.batch)
        u, i = users[s], items[s]
        loss = model.loss(u, i, freq[i].log())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.detach()
        if (step + 1) % 60 == 0:
            print(f"step {step + 1:4d}  loss {total.item() / 60:.4f}  {time.perf_counter() - t0:.1f}s")
            total.zero_()
    recall, ndcg = evaluate(model, held_u, held)
    print(f"recall@20 {recall:.4f}  ndcg@20 {ndcg:.4f}")


if __name__ == "__main__":
    main()
