"""A completion service for subtitle editors: requests queue up, a worker decodes them in batches with a static cache."""
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

VOCAB, EOS, PAD = 96, 1, 0
PROMPT, NEW, MAX_BATCH = 16, 12, 3


@dataclass
class Request:
    prompt: np.ndarray
    done: threading.Event = field(default_factory=threading.Event)
    text: list = field(default_factory=list)
    latency: float = 0.0


class CachedBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h, self.hd = heads, d // heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], self.h, self.hd).transpose(1, 2)

    def forward(self, x, cache, start):
        q, k, v = (self.heads(z) for z in self.qkv(self.n1(x)).chunk(3, -1))
        n = x.shape[1]
        cache[0][:, :, start:start + n] = k
        cache[1][:, :, start:start + n] = v
        slots = torch.arange(cache[0].shape[2], device=x.device)
        mask = slots[None] <= torch.arange(n, device=x.device)[:, None] + start
        a = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).flatten(2))
        return x + self.ff(self.n2(x))


class SubtitleLM(nn.Module):
    def __init__(self, d=32, layers=1, heads=2):
        super().__init__()
        self.emb, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(PROMPT + NEW, d)
        self.blocks = nn.ModuleList(CachedBlock(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.shape = (heads, PROMPT + NEW, d // heads)

    def new_cache(self, batch, device):
        return [[torch.zeros(batch, *self.shape, device=device) for _ in range(2)] for _ in self.blocks]

    def forward(self, ids, cache, start):
        h = self.emb(ids) + self.pos.weight[start:start + ids.shape[1]]
        for block, c in zip(self.blocks, cache):
            h = block(h, c, start)
        return self.norm(h[:, -1]) @ self.emb.weight.t()


class Worker(threading.Thread):
    def __init__(self, model, device, inbox):
        super().__init__(daemon=True)
        self.model, self.device, self.inbox = model, device, inbox
        self.served = self.batches = 0

    def collect(self):
        first = self.inbox.get()
        if first is None:
            return None
        group = [first]
        deadline = time.monotonic() + 0.01
        while len(group) < MAX_BATCH:
            try:
                item = self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if item is None:
                self.inbox.put(None)
                break
            group.append(item)
        return group

    @torch.inference_mode()
    def decode(self, prompts):
        ids = torch.from_numpy(prompts).to(self.device)
        cache = self.model.new_cache(len(prompts), self.device)
        token = self.model(ids, cache, 0).argmax(-1, keepdim=True)
        xm.mark_step()
        out = [token]
        finished = token == EOS
        for step in range(1, NEW):
            token = self.model(token, cache, PROMPT + step - 1).argmax(-1, keepdim=True)
            token = torch.where(finished, PAD, token)
            finished = finished | (token == EOS)
            xm.mark_step()
            out.append(token)
            if step % 6 == 0 and bool(finished.all()):
                break
        return torch.cat(out, 1).cpu().numpy()

    def run(self):
        while (group := self.collect()) is not None:
            began = time.monotonic()
            texts = self.decode(np.stack([r.prompt for r in group]))
            for request, row in zip(group, texts):
                request.text = [int(t) for t in row if t not in (EOS, PAD)]
                request.latency = time.monotonic() - began
                request.done.set()
            self.served += len(group)
            self.batches += 1


def clients(inbox, rng, rounds):
    """An editor sends one to three lines at a time, and waits for all of them."""
    for i in range(rounds):
        burst = [Request(rng.integers(2, VOCAB, PROMPT)) for _ in range(1 + (i * 7 + i // 3) % MAX_BATCH)]
        for r in burst:
            inbox.put(r)
        for r in burst:
            r.done.wait()
        yield burst


def main():
    torch.manual_seed(2)
    device = xm.xla_device()
    model = SubtitleLM().to(device).eval()
    inbox = queue.Queue()
    worker = Worker(model, device, inbox)
    worker.start()
    start, latencies = time.time(), []
    for i, burst in enumerate(clients(inbox, np.random.default_rng(0), 24)):
        latencies += [r.latency for r in burst]
        if i % 8 == 7:
            print(f"{i + 1} bursts, median latency {np.median(latencies[-12:]) * 1e3:.0f} ms, {time.time() - start:.1f}s")
    inbox.put(None)
    worker.join()
    print(f"{worker.served} requests in {worker.batches} batches")


if __name__ == "__main__":
    main()
