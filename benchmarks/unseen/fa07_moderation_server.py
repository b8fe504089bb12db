"""Batch inference service for comment moderation: a queue, a transformer encoder on XLA, and a policy."""
import collections
import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch_xla

LABELS = ("toxic", "spam", "threat", "adult", "off_topic")
MAX_TOKENS, VOCAB, MAX_BATCH = 48, 800, 16


@dataclass
class Request:
    uid: int
    tokens: np.ndarray
    arrived: float
    flags: list = field(default_factory=list)


class Traffic:
    """Poisson arrivals with a daily rhythm; a tick is one scheduling interval."""

    def __init__(self, seed=0):
        self.rng, self.uid = np.random.default_rng(seed), 0

    def tick(self, k):
        rate = 9 + 5 * math.sin(k / 6)
        for _ in range(self.rng.poisson(rate)):
            n = int(np.clip(self.rng.gamma(3, 8), 4, MAX_TOKENS))
            self.uid += 1
            yield Request(self.uid, self.rng.integers(1, VOCAB, n), time.time())


class Encoder(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d, padding_idx=0), nn.Embedding(MAX_TOKENS, d)
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(layers))
        self.proj = nn.ModuleList(nn.Linear(d, d) for _ in range(layers))
        self.ff = nn.ModuleList(nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d)) for _ in range(layers))
        self.ln = nn.ModuleList(nn.LayerNorm(d) for _ in range(layers))
        self.heads = heads
        self.out = nn.Linear(d, len(LABELS))

    def forward(self, ids):
        b, t = ids.shape
        keep = ids != 0
        x = self.tok(ids) + self.pos.weight[:t]
        for qkv, proj, ff, ln in zip(self.qkv, self.proj, self.ff, self.ln):
            q, k, v = (z.reshape(b, t, self.heads, -1).transpose(1, 2) for z in qkv(ln(x)).chunk(3, -1))
            att = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            att = att.masked_fill(~keep[:, None, None], -1e4).softmax(-1)
            x = x + proj((att @ v).transpose(1, 2).reshape(b, t, -1))
            x = x + ff(x)
        pooled = (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
        return self.out(pooled).sigmoid()


class Policy:
    """Thresholds per label; a comment with two or more flags goes to a person."""

    def __init__(self, thresholds):
        self.thresholds = thresholds

    def apply(self, requests, scores):
        escalated = 0
        for row, request in enumerate(requests):
            for name, value in zip(LABELS, scores[row].tolist()):
                if value > self.thresholds[name]:
                    request.flags.append(name)
            escalated += len(request.flags) >= 2
        return escalated


class Server:
    def __init__(self, model, device, policy):
        self.model, self.device, self.policy = model.to(device).eval(), device, policy
        self.queue, self.latency, self.counts = collections.deque(), [], collections.Counter()
        self.escalated = self.served = 0

    def warm_up(self):
        self.run(torch.ones(MAX_BATCH, MAX_TOKENS, dtype=torch.long))

    @torch.no_grad()
    def run(self, ids):
        scores = self.model(ids.to(self.device))
        torch_xla.sync()
        return scores

    def batch_of(self, requests):
        ids = torch.zeros(len(requests), MAX_TOKENS, dtype=torch.long)
        for i, r in enumerate(requests):
            ids[i, :len(r.tokens)] = torch.from_numpy(r.tokens)
        return ids

    def serve(self):
        while self.queue:
            requests = [self.queue.popleft() for _ in range(min(MAX_BATCH, len(self.queue)))]
            scores = self.run(self.batch_of(requests))
            self.escalated += self.policy.apply(requests, scores)
            now = time.time()
            for r in requests:
                self.latency.append(now - r.arrived)
                self.counts.update(r.flags)
            self.served += len(requests)


def main():
    torch.manual_seed(5)
    server = Server(Encoder(), torch_xla.device(), Policy({n: 0.56 + 0.02 * i for i, n in enumerate(LABELS)}))
    server.warm_up()
    traffic, t0 = Traffic(), time.time()
    for k in range(40):
        server.queue.extend(traffic.tick(k))
        server.serve()
        if k % 10 == 9:
            p50, p95 = np.percentile(server.latency, [50, 95]) * 1000
            print(f"tick {k:3d} served {server.served} escalated {server.escalated} p50 {p50:.0f} ms p95 {p95:.0f} ms "
                  f"{time.time() - t0:.1f} s", flush=True)
    print({n: server.counts[n] for n in LABELS})


if __name__ == "__main__":
    main()
