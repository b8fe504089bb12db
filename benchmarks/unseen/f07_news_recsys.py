"""Two-tower news recommender; clicks are trained where the reader really saw the article."""
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


@dataclass
class Cfg:
    users: int = 2000
    items: int = 3000
    dim: int = 32
    slate: int = 12
    batch: int = 12
    steps: int = 60
    lr: float = 0.01


class Tower(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, ids):
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


class Exposure:
    """Which slots of a slate were on screen: the device computes it from dwell times."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, dwell):
        return dwell.cumsum(1) < self.limit


def seen_only(fn):
    """Decorator: restricts a loss to the impressions that were on screen."""
    def wrapped(scores, clicks, seen):
        return fn(scores[seen], clicks[seen])
    return wrapped


@seen_only
def click_loss(scores, clicks):
    return F.binary_cross_entropy_with_logits(scores, clicks)


class Recommender(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user, self.item = Tower(cfg.users, cfg.dim), Tower(cfg.items, cfg.dim)
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, u, slate):
        return torch.einsum("bd,bsd->bs", self.user(u), self.item(slate)) * self.scale


class Traffic:
    def __init__(self, cfg, seed=0):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(seed)
        self.utaste = torch.randn(cfg.users, 4, generator=self.g)
        self.itopic = torch.randn(cfg.items, 4, generator=self.g)

    def draw(self):
        c = self.cfg
        u = torch.randint(0, c.users, (c.batch,), generator=self.g)
        s = torch.randint(0, c.items, (c.batch, c.slate), generator=self.g)
        affinity = (self.utaste[u][:, None] * self.itopic[s]).sum(-1)
        clicks = (torch.rand(affinity.shape, generator=self.g) < torch.sigmoid(affinity)).float()
        dwell = torch.rand(c.batch, c.slate, generator=self.g)
        return u, s, clicks, dwell


def main():
    cfg = Cfg()
    torch.manual_seed(0)
    dev = xm.xla_device()
    model = Recommender(cfg).to(dev)
    opt = torch.optim.Adagrad(model.parameters(), lr=cfg.lr)
    traffic, exposure = Traffic(cfg), Exposure(limit=2.0)
    ema = torch.zeros((), device=dev)
    for step in range(cfg.steps):
        u, s, clicks, dwell = (t.to(dev) for t in traffic.draw())
        seen = exposure(dwell)
        loss = click_loss(model(u, s), clicks, seen)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.mul_(0.95).add_(loss.detach(), alpha=0.05)
        torch_xla.sync()
        if (step + 1) % 30 == 0:
            print(f"step {step + 1} loss(ema) {ema.item():.4f}")


if __name__ == "__main__":
    main()
