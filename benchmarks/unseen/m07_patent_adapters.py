"""Adapt a frozen text encoder to patent sections: low-rank adapters, a retrieval prior, a new head."""
import json
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch.nn.utils import clip_grad_norm_

VOCAB, LENGTH, SECTIONS = 1200, 48, 8


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.attn, self.n1, self.n2 = Attention(d, heads), nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, d=48, layers=2, heads=4):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d, padding_idx=0)
        self.layers = nn.ModuleList(Layer(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        h = self.emb(ids)
        for layer in self.layers:
            h = layer(h)
        mask = (ids > 0).unsqueeze(-1)
        return (self.norm(h) * mask).sum(1) / mask.sum(1).clamp(min=1)


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank=4, alpha=8):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


def add_adapters(encoder, targets=("q", "v")):
    encoder.requires_grad_(False)
    for layer in encoder.layers:
        for name in targets:
            setattr(layer.attn, name, LoRALinear(getattr(layer.attn, name)))
    return encoder


class PriorArt:
    """Embeddings of granted patents with their sections; neighbours vote for a section."""

    def __init__(self, n, d, seed):
        g = np.random.default_rng(seed)
        self.section = torch.from_numpy(g.integers(0, SECTIONS, n))
        centers = g.normal(size=(SECTIONS, d))
        keys = centers[self.section.numpy()] + 0.5 * g.normal(size=(n, d))
        self.keys = F.normalize(torch.from_numpy(keys).float(), dim=1)


class PatentClassifier(nn.Module):
    def __init__(self, encoder, prior, d=48, temperature=0.1):
        super().__init__()
        self.encoder, self.prior, self.temperature = encoder, prior, temperature
        self.project = nn.Linear(d, d)
        self.head = nn.Linear(d, SECTIONS)

    def forward(self, ids):
        h = self.encoder(ids)
        keys = self.prior.keys.to(h.device)
        votes = F.one_hot(self.prior.section, SECTIONS).float().to(h.device)
        sim = F.normalize(self.project(h), dim=1) @ keys.t()
        return self.head(h) + (sim / self.temperature).softmax(-1) @ votes


def corpus(n, seed):
    g = np.random.default_rng(seed)
    y = g.integers(0, SECTIONS, n)
    ids = g.integers(1, VOCAB, (n, LENGTH))
    topical = 1 + y[:, None] * 100 + g.integers(0, 100, (n, LENGTH))
    ids = np.where(g.random((n, LENGTH)) < 0.25, topical, ids)
    for row, k in zip(ids, g.integers(LENGTH // 2, LENGTH + 1, n)):
        row[k:] = 0
    return torch.from_numpy(ids), torch.from_numpy(y)


def evaluate(model, ids, y, device, batch=64):
    model.eval()
    right = 0
    with torch.no_grad():
        for lo in range(0, len(ids), batch):
            right += (model(ids[lo:lo + batch].to(device)).argmax(-1).cpu() == y[lo:lo + batch]).sum().item()
    model.train()
    return right / len(ids)


def train(model, data, valid, device, epochs=6, batch=32, warmup=30):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=3e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    ids, y = data
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        began = time.time()
        for rows in torch.randperm(len(ids)).split(batch):
            loss = F.cross_entropy(model(ids[rows].to(device)), y[rows].to(device))
            opt.zero_grad()
            loss.backward()
            clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
            opt.step()
            sched.step()
            total += loss.detach()
            torch_xla.sync()
        record = {"epoch": epoch, "loss": round(total.item() / (len(ids) // batch), 4),
                  "valid": evaluate(model, *valid, device), "seconds": round(time.time() - began, 2)}
        print(json.dumps(record))


def main():
    torch.manual_seed(11)
    device = torch_xla.device()
    encoder = add_adapters(Encoder())
    model = PatentClassifier(encoder, PriorArt(30000, 48, 7)).to(device)
    torch_xla.sync()
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{trainable} trainable of {sum(p.numel() for p in model.parameters())}")
    train(model, corpus(1024, 1), corpus(256, 2), device)


if __name__ == "__main__":
    main()
