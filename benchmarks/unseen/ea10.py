"""Dual-encoder retrieval with in-batch and mined hard negatives; recall against the whole collection."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

FEATURES = 384   # hashed n-grams


@dataclass
class Config:
    docs: int = 24000
    topics: int = 400
    dim: int = 64
    batch: int = 128
    negatives: int = 4
    steps: int = 120
    mine_every: int = 30
    lr: float = 2e-3
    temperature: float = 0.05


class Collection:
    def __init__(self, cfg, rng):
        topic = rng.integers(0, cfg.topics, cfg.docs)
        proto = rng.gamma(0.15, 1.0, (cfg.topics, FEATURES)).astype(np.float32)
        own = rng.gamma(0.1, 1.0, (cfg.docs, FEATURES)).astype(np.float32)
        self.features = torch.from_numpy(np.log1p(rng.poisson(2 * proto[topic] + 2 * own).astype(np.float32)))
        self.rng = rng

    def __len__(self):
        return len(self.features)

    def queries(self, ids):
        """A query keeps a part of its document's terms, and has some noise."""
        x = self.features[torch.as_tensor(ids)]
        keep = torch.from_numpy(self.rng.random(x.shape).astype(np.float32) < 0.25)
        return x * keep + 0.3 * torch.rand_like(x) * (torch.rand_like(x) < 0.02)


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FEATURES, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Retriever:
    def __init__(self, cfg, collection, device):
        self.cfg, self.collection, self.device = cfg, collection, device
        self.query_encoder, self.doc_encoder = Encoder(cfg.dim).to(device), Encoder(cfg.dim).to(device)
        params = list(self.query_encoder.parameters()) + list(self.doc_encoder.parameters())
        self.opt = torch.optim.AdamW(params, lr=cfg.lr)
        self.hard = torch.from_numpy(collection.rng.integers(0, cfg.docs, (cfg.docs, 16)))

    def lookup(self, ids):
        return self.collection.features.to(self.device)[ids.to(self.device)]

    def loss(self, ids):
        pick = torch.randint(16, (len(ids), self.cfg.negatives))
        negatives = self.hard[ids].gather(1, pick)
        q = self.query_encoder(self.collection.queries(ids).to(self.device))
        docs = self.doc_encoder(self.lookup(torch.cat([ids, negatives.flatten()])))
        scores = q @ docs.T / self.cfg.temperature
        target = torch.arange(len(ids), device=self.device)
        same = negatives.flatten()[None] == ids[:, None]
        blocked = torch.cat([torch.zeros(len(ids), len(ids), dtype=torch.bool), same], 1).to(self.device)
        return F.cross_entropy(scores.masked_fill(blocked, -1e4), target)

    def train_step(self, ids):
        self.opt.zero_grad()
        loss = self.loss(ids)
        loss.backward()
        xm.optimizer_step(self.opt)
        torch_xla.sync()
        return loss.detach()

    @torch.no_grad()
    def index(self, chunk=4000):
        parts = []
        for k in range(0, len(self.collection), chunk):
            parts.append(self.doc_encoder(self.collection.features[k:k + chunk].to(self.device)))
            torch_xla.sync()
        return torch.cat(parts)

    @torch.no_grad()
    def mine(self):
        """The nearest wrong documents of every document of a part of the collection."""
        index = self.index()
        some = torch.from_numpy(self.collection.rng.permutation(self.cfg.docs)[:4096])
        for part in some.split(1024):
            near = (index[part.to(self.device)] @ index.T).topk(17).indices.cpu()
            self.hard[part] = near[:, 1:]
        return index

    @torch.no_grad()
    def recall(self, n=1024):
        index = self.index()
        ids = torch.from_numpy(self.collection.rng.choice(self.cfg.docs, n, replace=False))
        q = self.query_encoder(self.collection.queries(ids).to(self.device))
        top = (q @ index.T).topk(10).indices.cpu()
        hit = top == ids[:, None]
        return hit[:, 0].float().mean().item(), hit.any(1).float().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()
    collection = Collection(cfg, rng)
    print(f"{len(collection)} documents, {collection.features.nbytes / 2**20:.0f} MiB of features")
    model = Retriever(cfg, collection, device)
    t, losses = time.time(), []
    for step in range(1, cfg.steps + 1):
        ids = torch.from_numpy(rng.integers(0, cfg.docs, cfg.batch))
        losses.append(model.train_step(ids))
        if step % cfg.mine_every == 0:
            mean = torch.stack(losses).mean().item()
            losses.clear()
            model.mine()
            r1, r10 = model.recall()
            print(f"step {step}: loss {mean:.3f}, recall@1 {r1:.3f}, recall@10 {r10:.3f}, {time.time() - t:.1f} s")


if __name__ == "__main__":
    main()
