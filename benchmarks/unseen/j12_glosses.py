"""Glossing of morphemes: an encoder-decoder over bucketed sentences, with accumulated gradients."""
import argparse
import math
import random
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

PAD, BOS, MORPHEMES, GLOSSES = 0, 1, 80, 60
BUCKETS = (8, 12, 16)


def corpus(n, seed):
    rng = random.Random(seed)
    lexicon = {m: 2 + random.Random(m).randrange(GLOSSES - 2) for m in range(2, MORPHEMES)}
    sentences = []
    for _ in range(n):
        morphemes = [rng.randrange(2, MORPHEMES) for _ in range(rng.randint(4, BUCKETS[-1]))]
        glosses = [lexicon[m] for m in morphemes]
        for i in range(0, len(glosses) - 1, 3):
            glosses[i], glosses[i + 1] = glosses[i + 1], glosses[i]
        sentences.append((morphemes, glosses))
    return sentences


class BucketedBatches:
    """Batches of sentences that share a bucket; every batch of a bucket has the same shape."""

    def __init__(self, sentences, batch, seed):
        self.buckets = defaultdict(list)
        for pair in sentences:
            self.buckets[next(b for b in BUCKETS if len(pair[0]) <= b)].append(pair)
        self.batch, self.rng = batch, random.Random(seed)

    def __iter__(self):
        plan = []
        for width, pairs in self.buckets.items():
            self.rng.shuffle(pairs)
            plan += [(width, pairs[i:i + self.batch]) for i in range(0, len(pairs) - self.batch + 1, self.batch)]
        self.rng.shuffle(plan)
        for width, pairs in plan:
            yield self.pad([m for m, _ in pairs], width), self.pad([g for _, g in pairs], width)

    @staticmethod
    def pad(rows, width):
        out = torch.full((len(rows), width), PAD)
        for row, values in zip(out, rows):
            row[: len(values)] = torch.tensor(values)
        return out


class Glosser(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.morphemes, self.glosses = nn.Embedding(MORPHEMES, width), nn.Embedding(GLOSSES, width)
        self.register_buffer("position", self.sinusoids(BUCKETS[-1], width))
        self.encode_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.decode_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.out = nn.Linear(width, GLOSSES)

    @staticmethod
    def sinusoids(n, width):
        angle = torch.arange(n)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(100.0) / width))
        return torch.cat([angle.sin(), angle.cos()], 1)

    def forward(self, source, shifted):
        n = source.shape[1]
        padding = torch.zeros(source.shape, device=source.device).masked_fill(source == PAD, -1e9)
        causal = torch.full((n, n), -1e9, device=source.device).triu(1)
        x = self.morphemes(source) + self.position[:n]
        h = self.norms[0](x)
        x = x + self.encode_attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        y = self.glosses(shifted) + self.position[:n]
        h = self.norms[1](y)
        y = y + self.decode_attention(h, h, h, attn_mask=causal, need_weights=False)[0]
        y = y + self.cross_attention(self.norms[2](y), x, x, key_padding_mask=padding, need_weights=False)[0]
        return self.out(y + self.mlp(self.norms[3](y)))


def sequence_loss(model, source, target):
    shifted = F.pad(target[:, :-1], (1, 0), value=BOS)
    return F.cross_entropy(model(source, shifted).flatten(0, 1), target.flatten(), ignore_index=PAD)


@torch.no_grad()
def validation_loss(model, batches, device):
    total, n = torch.zeros((), device=device), 0
    for source, target in batches:
        total += sequence_loss(model, source.to(device), target.to(device))
        n += 1
        torch_xla.sync()
    return total.item() / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = xm.xla_device()
    train_batches = BucketedBatches(corpus(1600, 0), args.batch, 0)
    valid_batches = list(BucketedBatches(corpus(256, 1), args.batch, 1))
    model = Glosser().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    started, micro = time.time(), 0
    for epoch in range(args.epochs):
        for source, target in train_batches:
            loss = sequence_loss(model, source.to(device), target.to(device)) / args.accumulate
            loss.backward()
            torch_xla.sync()
            micro += 1
            if micro % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                torch_xla.sync()
            if micro % 100 == 0:
                print(f"{micro} loss {args.accumulate * loss.item():.4f} {time.time() - started:.1f} s", flush=True)
        if epoch % 3 == 2:
            print(f"epoch {epoch} validation {validation_loss(model, valid_batches, device):.4f}", flush=True)


if __name__ == "__main__":
    main()
