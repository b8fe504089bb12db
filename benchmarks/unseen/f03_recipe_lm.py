"""Character language model on synthetic recipes; after every epoch it writes a few recipes to look at."""
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

WORDS = "add stir bake boil salt pepper flour sugar butter onion garlic rice oil slowly until golden then serve warm with basil".split()
VOCAB = sorted(set(" ".join(WORDS) + " .\n"))
STOI = {c: i for i, c in enumerate(VOCAB)}


class Config:
    dim = 96
    heads = 4
    layers = 1
    context = 32
    batch = 16
    epochs = 4
    steps_per_epoch = 40
    lr = 2e-3


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h, self.d = cfg.heads, cfg.dim // cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, x, memo=None, at=None):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.h, self.d).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        if memo is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values, allowed = memo.write(id(self), k, v, at)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=allowed)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.att = Attention(cfg)
        self.ff = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x, memo=None, at=None):
        x = x + self.att(self.n1(x), memo, at)
        return x + self.ff(self.n2(x))


class CharLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB), cfg.dim)
        self.pos = nn.Embedding(cfg.context, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, len(VOCAB))

    def forward(self, idx, memo=None, at=None):
        where = torch.arange(idx.shape[1], device=idx.device) if memo is None else memo.place(at)
        x = self.tok(idx) + self.pos(where)
        for b in self.blocks:
            x = b(x, memo, at)
        return self.head(x)


class Memo:
    """Static key/value memory, so that decoding keeps one shape."""

    def __init__(self, cfg, batch, device):
        self.cfg, self.batch, self.device = cfg, batch, device
        self.store = {}
        self.ids = torch.arange(cfg.context, device=device)

    def place(self, at):
        return self.ids[at:at + 1]

    def write(self, who, k, v, at):
        if who not in self.store:
            shape = (self.batch, self.cfg.heads, self.cfg.context, k.shape[-1])
            self.store[who] = [torch.zeros(shape, device=self.device) for _ in "kv"]
        keys, values = self.store[who]
        keys[:, :, at:at + 1] = k
        values[:, :, at:at + 1] = v
        return keys, values, (self.ids <= at)[None, None, None]


@torch.no_grad()
def write_recipes(model, cfg, device, n=4, length=10):
    memo = Memo(cfg, n, device)
    tok = torch.full((n, 1), STOI["\n"], device=device)
    out = [tok]
    for at in range(length):
        logits = model(tok, memo, at)[:, -1]
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        tok = (logits / 0.8 + noise).argmax(-1, keepdim=True)
        out.append(tok)
        torch_xla.sync()
    return ["".join(VOCAB[i] for i in row) for row in torch.cat(out, 1).tolist()]


def corpus(rnd, n=4000):
    return " ".join(rnd.choice(WORDS) + ("." if rnd.random() < 0.1 else "") for _ in range(n))


def main():
    cfg = Config()
    torch.manual_seed(0)
    rnd = random.Random(0)
    data = torch.tensor([STOI[c] for c in corpus(rnd)])
    device = torch.device("xla")
    model = CharLM(cfg).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    total = cfg.epochs * cfg.steps_per_epoch
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)))
    for epoch in range(cfg.epochs):
        for _ in range(cfg.steps_per_epoch):
            starts = [rnd.randrange(len(data) - cfg.context - 1) for _ in range(cfg.batch)]
            chunk = torch.stack([data[s:s + cfg.context + 1] for s in starts]).to(device)
            loss = F.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            torch_xla.sync()
        print(f"epoch {epoch} loss {loss.item():.3f}")
        for line in write_recipes(model, cfg, device):
            print("   ", repr(line))


if __name__ == "__main__":
    main()
