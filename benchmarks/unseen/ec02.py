"""Character-level LM: train briefly, then greedy decoding with a key/value cache."""
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 32
    dim: int = 64
    heads: int = 4
    layers: int = 2
    ctx: int = 160
    train_len: int = 64
    batch: int = 24
    steps: int = 60
    prompt: int = 8
    new_tokens: int = 120
    requests: int = 4


def corpus(cfg, n=40_000):
    """An order-2 Markov chain with a few strong transitions per state."""
    g = torch.Generator().manual_seed(3)
    nxt = torch.randint(cfg.vocab, (cfg.vocab, cfg.vocab, 3), generator=g).tolist()
    choice = torch.multinomial(torch.tensor([0.85, 0.1, 0.05]), n, True, generator=g).tolist()
    seq = [1, 2]
    for c in choice:
        seq.append(nxt[seq[-2]][seq[-1]][c])
    return torch.tensor(seq)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x, cache=None, offset=0):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            ck, cv = cache
            ck[:, :, offset:offset + t] = k
            cv[:, :, offset:offset + t] = v
            rows = torch.arange(offset, offset + t)[:, None]
            mask = torch.arange(ck.shape[2])[None, :] <= rows
            y = F.scaled_dot_product_attention(q, ck, cv, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.ctx, cfg.dim)
        self.att = nn.ModuleList(Attention(cfg) for _ in range(cfg.layers))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(),
                                               nn.Linear(4 * cfg.dim, cfg.dim)) for _ in range(cfg.layers))
        self.norm = nn.ModuleList(nn.LayerNorm(cfg.dim) for _ in range(2 * cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.vocab)
        self.seen = 0          # tokens already in the cache

    def forward(self, ids, caches=None):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(self.seen, self.seen + t))
        for i, (att, mlp) in enumerate(zip(self.att, self.mlp)):
            x = x + att(self.norm[2 * i](x), caches[i] if caches else None, self.seen)
            x = x + mlp(self.norm[2 * i + 1](x))
        return self.head(x)

    def new_caches(self, cfg, b):
        self.seen = 0
        shape = (b, cfg.heads, cfg.ctx, cfg.dim // cfg.heads)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in range(cfg.layers)]


@torch.no_grad()
def generate(model, step, cfg, prompt):
    caches = model.new_caches(cfg, len(prompt))
    logits = model(prompt, caches)              # prefill, eager: once per request
    model.seen = prompt.shape[1]
    out = [logits[:, -1:].argmax(-1)]
    for _ in range(cfg.new_tokens - 1):
        logits = step(out[-1], caches)
        model.seen += 1
        out.append(logits[:, -1:].argmax(-1))
    return torch.cat(out, 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    cfg = Config()
    data = corpus(cfg)
    model = LM(cfg)
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
    for it in range(cfg.steps):
        start = torch.randint(len(data) - cfg.train_len - 1, (cfg.batch,))
        win = torch.stack([data[s:s + cfg.train_len + 1] for s in start])
        loss = F.cross_entropy(model(win[:, :-1]).flatten(0, 1), win[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 20 == 19:
            print(f"step {it + 1} loss {loss.item():.3f}", flush=True)
    step = torch.compile(model, backend="aot_eager")
    for r in range(cfg.requests):
        t0 = time.time()
        start = torch.randint(len(data) - cfg.prompt, (8,))
        text = generate(model, step, cfg, torch.stack([data[s:s + cfg.prompt] for s in start]))
        print(f"request {r}: {text.numel() / (time.time() - t0):.0f} tokens/s, "
              f"{len(text.unique())} symbols used, first {text[0, :10].tolist()}", flush=True)
