import contextlib
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    vocab: int = 40
    block: int = 32
    layers: int = 2
    heads: int = 2
    width: int = 32


@dataclass
class RunConfig:
    batch: int = 16
    accumulate: int = 2
    iters: int = 900
    warmup: int = 50
    lr: float = 3e-3
    min_lr: float = 3e-4
    eval_every: int = 150
    eval_iters: int = 8
    log_every: int = 50


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.qkv, self.proj, self.heads = nn.Linear(c.width, 3 * c.width), nn.Linear(c.width, c.width), c.heads

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(c.width), nn.LayerNorm(c.width), Attention(c)
        self.mlp = nn.Sequential(nn.Linear(c.width, 4 * c.width), nn.GELU(), nn.Linear(4 * c.width, c.width))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.tok, self.pos = nn.Embedding(c.vocab, c.width), nn.Embedding(c.block, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm, self.head = nn.LayerNorm(c.width), nn.Linear(c.width, c.vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos.weight[:idx.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def compose(n, vocab, gen):
    """A walk over scale degrees with repeated motifs."""
    motif = torch.randint(0, 7, (40, 8), generator=gen)
    pick = torch.randint(0, 40, (n // 8 + 1,), generator=gen)
    shift = torch.randint(0, 4, (n // 8 + 1, 1), generator=gen) * 7
    return (motif[pick] + shift).flatten()[:n] % vocab


def get_batch(data, c, r, gen):
    at = torch.randint(0, len(data) - c.block - 1, (r.batch,), generator=gen)
    rows = data[at[:, None] + torch.arange(c.block + 1)]
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def lr_at(i, r):
    if i < r.warmup:
        return r.lr * (i + 1) / r.warmup
    share = (i - r.warmup) / (r.iters - r.warmup)
    return r.min_lr + 0.5 * (r.lr - r.min_lr) * (1 + math.cos(math.pi * share))


@contextlib.contextmanager
def evaluating(model):
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def estimate_loss(model, splits, c, r, gen):
    with evaluating(model):
        return {k: torch.stack([model(*get_batch(d, c, r, gen))[1] for _ in range(r.eval_iters)]).mean().item()
                for k, d in splits.items()}


def improvise(model, c, gen, n=24):
    row = torch.zeros(1, c.block, dtype=torch.long)
    with evaluating(model):
        for i in range(n):
            logits, _ = model(row)
            row[0, i + 1] = torch.multinomial(F.softmax(logits[0, i], -1), 1, generator=gen)
    return row[0, :n].tolist()


def main():
    torch.manual_seed(1337)
    c, r, gen = GPTConfig(), RunConfig(), torch.Generator().manual_seed(5)
    data = compose(20000, c.vocab, gen)
    splits = {"train": data[:18000], "val": data[18000:]}
    raw = GPT(c)
    model = torch.compile(raw)
    decay = [p for p in raw.parameters() if p.dim() > 1]
    plain = [p for p in raw.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                            lr=r.lr, betas=(0.9, 0.95))
    best, began = float("inf"), time.time()
    for i in range(r.iters):
        for group in opt.param_groups:
            group["lr"] = lr_at(i, r)
        for _ in range(r.accumulate):
            _, loss = model(*get_batch(splits["train"], c, r, gen))
            (loss / r.accumulate).backward()
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if (i + 1) % r.log_every == 0:
            print(f"iter {i + 1} loss {loss.item():.4f} lr {lr_at(i, r):.2e} {time.time() - began:.1f}s", flush=True)
        if (i + 1) % r.eval_every == 0:
            now = estimate_loss(model, splits, c, r, gen)
            print(f"  eval {now} {improvise(model, c, gen)}")
            if now["val"] < best:
                best = now["val"]
                torch.save({"model": raw.state_dict(), "iter": i}, "/tmp/bb11_chorale.pt")


if __name__ == "__main__":
    main()
