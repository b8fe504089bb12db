"""A small causal transformer over drum patterns (one token per sixteenth), in buckets of one, two and four bars."""
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

PAD, HITS = 0, 16  # a token is a subset of {kick, snare, hat, tom}, plus one
BUCKETS = (16, 32, 64)


class Grooves(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            length = rng.choice([14, 16, 28, 32, 60, 64])
            swing, density = rng.random(), 0.3 + 0.5 * rng.random()
            seq = []
            for t in range(length):
                kick = t % 8 == 0 or (t % 8 == 5 and rng.random() < swing)
                snare = t % 8 == 4
                hat = t % 2 == 0 or rng.random() < density * 0.4
                tom = t % 16 >= 14 and rng.random() < 0.5
                seq.append(1 + kick + 2 * snare + 4 * hat + 8 * tom)
            self.items.append(seq)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def bucket_of(n):
    return next(b for b in BUCKETS if n <= b)


class BucketBatches(Sampler):
    """Batches of grooves of one bucket; batches are shuffled, incomplete ones left out."""

    def __init__(self, data, batch, seed):
        self.groups = {b: [i for i, s in enumerate(data.items) if bucket_of(len(s)) == b] for b in BUCKETS}
        self.batch, self.rng = batch, random.Random(seed)

    def __iter__(self):
        batches = []
        for idx in self.groups.values():
            self.rng.shuffle(idx)
            full = len(idx) // self.batch * self.batch
            batches += [idx[i:i + self.batch] for i in range(0, full, self.batch)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(len(g) // self.batch for g in self.groups.values())


def collate(seqs):
    width = bucket_of(max(map(len, seqs)))
    out = torch.full((len(seqs), width), PAD)
    for row, s in zip(out, seqs):
        row[:len(s)] = torch.tensor(s)
    return out


class Drummer(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.tok = nn.Embedding(HITS + 1, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max(BUCKETS), dim)
        self.qkv = nn.ModuleList(nn.Linear(dim, 3 * dim) for _ in range(layers))
        self.mlp = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(),
                                               nn.Linear(2 * dim, dim)) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, HITS + 1)

    def forward(self, x):
        b, t = x.shape
        h = self.tok(x) + self.pos.weight[:t]
        for qkv, mlp in zip(self.qkv, self.mlp):
            q, k, v = qkv(h).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + a.transpose(1, 2).reshape(b, t, -1)
            h = h + mlp(h)
        return self.out(self.norm(h))


def lm_loss(model, x):
    logits = model(x[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), ignore_index=PAD)


@torch.no_grad()
def perplexity(model, loader, device):
    model.eval()
    losses = []
    for x in pl.MpDeviceLoader(loader, device):
        losses.append(lm_loss(model, x))
    model.train()
    return math.exp(torch.stack(losses).mean().item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--log-every", type=int, default=50)
    args = ap.parse_args()
    torch.manual_seed(1)
    device = xm.xla_device()
    data, held = Grooves(768, 1), Grooves(240, 2)
    train = DataLoader(data, batch_sampler=BucketBatches(data, 16, 3), collate_fn=collate)
    valid = DataLoader(held, batch_sampler=BucketBatches(held, 24, 4), collate_fn=collate)
    model = Drummer().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    total = args.epochs * len(train)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / 25, 0.5 + 0.5 * math.cos(math.pi * s / (total + 1))))
    step = 0
    for epoch in range(args.epochs):
        for x in pl.MpDeviceLoader(train, device):
            opt.zero_grad()
            loss = lm_loss(model, x)
            loss.backward()
            xm.optimizer_step(opt)
            sched.step()
            step += 1
            if step % args.log_every == 0:
                xm.mark_step()
                xm.master_print(f"step {step}/{total}  loss {loss.item():.3f}")
        if epoch + 1 == args.epochs:
            xm.master_print(f"perplexity {perplexity(model, valid, device):.3f}")


if __name__ == "__main__":
    main()
