"""Intent classifier over short and long utterances, two length buckets, EMA weights."""
import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 800
    dim: int = 32
    heads: int = 4
    classes: int = 12
    buckets: tuple = (16, 48)
    batch: int = 32
    epochs: int = 2
    n_train: int = 3210
    n_val: int = 250
    lr: float = 1e-3
    log_every: int = 50
    ema: float = 0.995


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.pos = nn.Parameter(torch.zeros(1, max(cfg.buckets), cfg.dim))
        self.heads = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.proj = nn.Linear(cfg.dim, cfg.dim)
        self.n1 = nn.LayerNorm(cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.classes)

    def forward(self, ids):
        b, t = ids.shape
        mask = ids.ne(0)
        h = self.tok(ids) + self.pos[:, :t]
        q, k, v = self.qkv(self.n1(h)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        h = h + self.proj(a.transpose(1, 2).reshape(b, t, -1))
        m = mask.unsqueeze(-1).to(h.dtype)
        return self.out((h * m).sum(1) / m.sum(1).clamp(min=1))


def make_split(n, cfg, gen):
    """Utterances, stored already padded in the bucket they belong to."""
    split = {}
    for b, share in zip(cfg.buckets, (0.6, 0.4)):
        m = int(n * share)
        y = torch.randint(0, cfg.classes, (m,), generator=gen)
        x = torch.randint(1, cfg.vocab, (m, b), generator=gen)
        x[:, 0] = y + 1
        lens = torch.randint(b // 2, b + 1, (m,), generator=gen)
        x[torch.arange(b)[None] >= lens[:, None]] = 0
        split[b] = (x, y)
    return split


def batches(split, cfg, gen):
    plan = []
    for b, (x, _) in split.items():
        order = torch.randperm(x.shape[0], generator=gen)
        plan += [(b, idx) for idx in order.split(cfg.batch) if idx.numel() == cfg.batch]
    for j in torch.randperm(len(plan), generator=gen).tolist():
        b, idx = plan[j]
        x, y = split[b]
        yield x[idx], y[idx]


@torch.no_grad()
def evaluate(model, split, cfg):
    model.eval()
    right, seen = torch.zeros((), dtype=torch.long), 0
    for x, y in split.values():
        for s in range(0, x.shape[0], cfg.batch):
            xb, yb = x[s:s + cfg.batch], y[s:s + cfg.batch]
            short = cfg.batch - xb.shape[0]
            if short:
                xb = F.pad(xb, (0, 0, 0, short), value=1)
            right += (model(xb).argmax(-1)[: yb.shape[0]] == yb).sum()
            seen += yb.shape[0]
    model.train()
    return right.item() / seen


def main():
    cfg = Config()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    train, val = make_split(cfg.n_train, cfg, gen), make_split(cfg.n_val, cfg, gen)
    net = Encoder(cfg)
    ema = copy.deepcopy(net).requires_grad_(False)
    model = torch.compile(net, dynamic=False)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=200)
    step, window = 0, torch.zeros(())
    for epoch in range(cfg.epochs):
        for x, y in batches(train, cfg, gen):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            torch._foreach_lerp_(list(ema.parameters()), list(net.parameters()), 1 - cfg.ema)
            window += loss.detach()
            step += 1
            if step % cfg.log_every == 0:
                print(f"{step}: loss {window.item() / cfg.log_every:.3f} lr {sched.get_last_lr()[0]:.2e}")
                window.zero_()
        print(f"epoch {epoch}: val acc {evaluate(model, val, cfg):.3f}")


if __name__ == "__main__":
    main()
