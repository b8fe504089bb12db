"""Implicit-feedback recommendation: two towers, BPR loss, recall@20 after every epoch."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl


@dataclass
class Config:
    users: int = 600
    items: int = 1500
    dim: int = 48
    batch: int = 512
    epochs: int = 4
    topk: int = 20
    lr: float = 5e-3
    seed: int = 11


def synthesize(cfg):
    """Users with tastes in a latent space; some read a lot, most read little."""
    rng = np.random.default_rng(cfg.seed)
    taste = rng.normal(size=(cfg.users, 6))
    kind = rng.normal(size=(cfg.items, 6))
    score = taste @ kind.T + rng.gumbel(size=(cfg.users, cfg.items))
    counts = np.clip(rng.lognormal(3.2, 0.5, cfg.users).astype(int), 10, 90)
    train, held = [], []
    for user in range(cfg.users):
        liked = np.argsort(-score[user])[: counts[user]]
        rng.shuffle(liked)
        train.append(np.sort(liked[5:]))
        held.append(liked[:5])
    return train, np.stack(held)


class Interactions(torch.utils.data.Dataset):
    def __init__(self, train, cfg):
        self.users = np.concatenate([np.full(len(t), u) for u, t in enumerate(train)])
        self.items = np.concatenate(train)
        self.cfg = cfg

    def __len__(self):
        return len(self.users)

    def __getitem__(self, i):
        negative = np.random.randint(self.cfg.items)
        return int(self.users[i]), int(self.items[i]), negative


class TwoTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user = nn.Embedding(cfg.users, cfg.dim)
        self.item = nn.Embedding(cfg.items, cfg.dim)
        self.head = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.ReLU(), nn.Linear(cfg.dim, cfg.dim))
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)

    def encode_user(self, u):
        e = self.user(u)
        return e + self.head(e)

    def forward(self, u, i, j):
        e = self.encode_user(u)
        return (e * (self.item(i) - self.item(j))).sum(-1)


@torch.no_grad()
def recall(model, train, held, cfg, device):
    model.eval()
    hits = torch.zeros((), device=device)
    probe = range(0, cfg.users, 4)
    catalogue = model.item.weight
    for user in probe:
        scores = model.encode_user(torch.tensor([user], device=device)) @ catalogue.T
        seen = torch.as_tensor(train[user], device=device)
        scores[0, seen] = -1e9                       # never recommend what was read
        best = scores.topk(cfg.topk).indices[0]
        truth = torch.as_tensor(held[user], device=device)
        hits += (best[:, None] == truth[None]).any(1).sum()
        torch_xla.sync()
    model.train()
    return hits.item() / (len(probe) * held.shape[1])


def report(epoch, step, loss):
    print(f"  epoch {epoch} step {step}: loss {loss.item():.4f}")


def main():
    cfg = Config()
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch_xla.device()
    train, held = synthesize(cfg)
    data = torch.utils.data.DataLoader(Interactions(train, cfg), cfg.batch, shuffle=True, drop_last=True)
    loader = pl.MpDeviceLoader(data, device)
    model = TwoTower(cfg).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    print(f"{len(data.dataset)} interactions, {len(data)} steps per epoch")
    for epoch in range(cfg.epochs):
        for step, (u, i, j) in enumerate(loader):
            loss = -F.logsigmoid(model(u, i, j)).mean()
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            if step % 15 == 0:
                xm.add_step_closure(report, args=(epoch, step, loss.detach()))
        print(f"epoch {epoch}: recall@{cfg.topk} {recall(model, train, held, cfg, device):.3f}")


if __name__ == "__main__":
    main()
