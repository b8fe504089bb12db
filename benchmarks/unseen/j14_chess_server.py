"""Serves a small chess-opening model: queued requests, two batch sizes, a static cache of keys and values."""
import logging
import queue
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

log = logging.getLogger("server")
MOVES, PROMPT, NEW, WIDTH, HEADS, LAYERS = 160, 8, 16, 48, 4, 2
TOTAL = PROMPT + NEW
BATCH_SIZES = (4, 8)


@dataclass
class Request:
    number: int
    opening: np.ndarray
    arrived: float = field(default_factory=time.time)
    answer: np.ndarray | None = None


class CachedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, cache, positions):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        keys, values = cache
        keys.index_copy_(2, positions, k)
        values.index_copy_(2, positions, v)
        visible = torch.arange(TOTAL, device=x.device)[None, :] <= positions[:, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
        return self.out(y.transpose(1, 2).reshape(b, n, WIDTH))


class OpeningModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.moves, self.places = nn.Embedding(MOVES, WIDTH), nn.Embedding(TOTAL, WIDTH)
        self.attention = nn.ModuleList(CachedAttention() for _ in range(LAYERS))
        self.mlps = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                                nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))

    def forward(self, tokens, caches, positions):
        x = self.moves(tokens) + self.places(positions)
        for attention, norm, mlp, cache in zip(self.attention, self.norms, self.mlps, caches):
            x = x + attention(norm(x), cache, positions)
            x = x + mlp(x)
        return x[:, -1] @ self.moves.weight.t()


class Generator:
    def __init__(self, model, device, temperature=0.8):
        self.model, self.device, self.temperature = model.to(device).eval(), device, temperature
        self.caches = {b: self.new_caches(b) for b in BATCH_SIZES}

    def new_caches(self, batch):
        shape = (batch, HEADS, TOTAL, WIDTH // HEADS)
        return [tuple(torch.zeros(shape, device=self.device) for _ in range(2)) for _ in range(LAYERS)]

    def pick(self, logits):
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        return (logits / self.temperature + noise).argmax(-1, keepdim=True)

    @torch.no_grad()
    def continue_games(self, openings):
        caches = self.caches[len(openings)]
        positions = torch.arange(PROMPT, device=self.device)
        token = self.pick(self.model(openings.to(self.device), caches, positions))
        position = positions[-1:] + 1
        generated = torch.zeros(len(openings), NEW, dtype=torch.long, device=self.device)
        generated[:, :1] = token
        torch_xla.sync()
        for _ in range(NEW - 1):
            token = self.pick(self.model(token, caches, position))
            generated.index_copy_(1, position - PROMPT + 1, token)
            position = position + 1
            torch_xla.sync()
        return generated.cpu().numpy()


class Server:
    def __init__(self, generator, wait=0.01):
        self.generator, self.wait, self.requests = generator, wait, queue.Queue()
        self.latencies = []

    def gather(self):
        batch = [self.requests.get()]
        deadline = time.time() + self.wait
        while len(batch) < BATCH_SIZES[-1] and batch[-1] is not None:
            try:
                batch.append(self.requests.get(timeout=max(0.0, deadline - time.time())))
            except queue.Empty:
                break
        return [r for r in batch if r is not None], batch[-1] is None

    def run(self):
        finished = False
        while not finished:
            batch, finished = self.gather()
            if not batch:
                continue
            size = next(b for b in BATCH_SIZES if len(batch) <= b)
            rows = [r.opening for r in batch] + [np.zeros(PROMPT, np.int64)] * (size - len(batch))
            answers = self.generator.continue_games(torch.from_numpy(np.stack(rows)))
            for request, answer in zip(batch, answers):
                request.answer = answer
                self.latencies.append(time.time() - request.arrived)
            if len(self.latencies) % 100 < len(batch):
                log.info("%d games, median latency %.3f s", len(self.latencies), np.median(self.latencies[-100:]))


def players(server, n, seed=0):
    rng = np.random.default_rng(seed)
    sent = 0
    while sent < n:
        for _ in range(min(n - sent, int(rng.choice([3, 4, 7, 8])))):
            server.requests.put(Request(sent, rng.integers(1, MOVES, PROMPT)))
            sent += 1
        while server.requests.qsize() > 8:
            time.sleep(0.002)
    server.requests.put(None)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(6)
    generator = Generator(OpeningModel(), xm.xla_device())
    for size in BATCH_SIZES:
        generator.continue_games(torch.ones(size, PROMPT, dtype=torch.long))
    server = Server(generator)
    client = threading.Thread(target=players, args=(server, 700), daemon=True)
    client.start()
    server.run()
    client.join()
    log.info("served %d, 95%% within %.3f s", len(server.latencies), np.quantile(server.latencies, 0.95))


if __name__ == "__main__":
    main()
