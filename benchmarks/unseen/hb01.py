"""Two-tower retrieval for a synthetic video shop: in-batch softmax with popularity correction, recall@20 per epoch."""
import argparse
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class ShopConfig:
    users: int = 3000
    items: int = 12000
    genres: int = 24
    history: int = 12
    dim: int = 48
    epochs: int = 4
    steps: int = 60
    batch: int = 384
    lr: float = 0.5
    top: int = 20


class Shop:
    """Users like three genres; they watch items of these genres, popular ones more often."""

    def __init__(self, cfg, seed=11):
        g = torch.Generator().manual_seed(seed)
        self.cfg, self.g = cfg, g
        self.item_genre = torch.randint(0, cfg.genres, (cfg.items,), generator=g)
        self.popularity = 1.0 / (1 + torch.randperm(cfg.items, generator=g).float()) ** 0.6
        taste = torch.rand(cfg.users, cfg.genres, generator=g).topk(3, dim=1).indices
        liked = torch.zeros(cfg.users, cfg.genres).scatter_(1, taste, 1.0) + 0.02
        weight = liked[:, self.item_genre] * self.popularity
        picks = torch.multinomial(weight, cfg.history + 6, generator=g)
        self.history = picks[:, : cfg.history]
        self.train_pos = picks[:, cfg.history : -1]
        self.target = picks[:, -1]
        self.log_q = torch.log(self.popularity / self.popularity.sum())

    def batch(self):
        u = torch.randint(0, self.cfg.users, (self.cfg.batch,), generator=self.g)
        j = torch.randint(0, self.train_pos.shape[1], (self.cfg.batch,), generator=self.g)
        return u, self.train_pos[u, j]


class TwoTower(nn.Module):
    def __init__(self, cfg, item_genre):
        super().__init__()
        self.item_emb = nn.Embedding(cfg.items, cfg.dim)
        self.genre_emb = nn.Embedding(cfg.genres, cfg.dim)
        nn.init.normal_(self.item_emb.weight, std=0.05)
        self.register_buffer("item_genre", item_genre)
        self.user_mlp = nn.Sequential(
            nn.Linear(cfg.dim, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, cfg.dim))
        self.item_mlp = nn.Sequential(nn.Linear(cfg.dim, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, cfg.dim))
        self.scale = nn.Parameter(torch.tensor(math.log(12.0)))

    def items(self, ids):
        return F.normalize(self.item_mlp(self.item_emb(ids) + self.genre_emb(self.item_genre[ids])), dim=-1)

    def users(self, history):
        h = self.item_emb(history) + self.genre_emb(self.item_genre[history])
        return F.normalize(self.user_mlp(h.mean(dim=1)), dim=-1)

    def forward(self, history, pos, log_q):
        logits = self.scale.exp() * self.users(history) @ self.items(pos).T - log_q
        return F.cross_entropy(logits, torch.arange(pos.shape[0]))


@torch.no_grad()
def recall_at(model, shop, k):
    item_vecs = model.items(torch.arange(shop.cfg.items))
    user_vecs = model.users(shop.history)
    hits = 0
    for u in range(shop.cfg.users):
        scores = item_vecs @ user_vecs[u]
        scores[shop.history[u]] = -1e9
        ranking = torch.argsort(scores, descending=True)
        hits += int(shop.target[u].item() in ranking[:k].tolist())
    return hits / shop.cfg.users


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    cfg = ShopConfig(epochs=ap.parse_args().epochs)
    torch.manual_seed(0)
    shop = Shop(cfg)
    model = TwoTower(cfg, shop.item_genre)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    total = cfg.epochs * cfg.steps
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda i: min(1.0, (i + 1) / 20) * 0.5 * (1 + math.cos(math.pi * i / total)))
    loss_fn = torch.compile(model)

    @torch.compile
    def apply_gradients():
        opt.step()

    for epoch in range(cfg.epochs):
        t0, running = time.perf_counter(), torch.zeros(())
        for _ in range(cfg.steps):
            u, pos = shop.batch()
            loss = loss_fn(shop.history[u], pos, shop.log_q[pos])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            apply_gradients()
            sched.step()
            running += loss.detach()
        mean = (running / cfg.steps).item()
        print(f"epoch {epoch}: loss {mean:.4f}  recall@{cfg.top} {recall_at(model, shop, cfg.top):.4f}  "
              f"lr {sched.get_last_lr()[0]:.5f}  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
