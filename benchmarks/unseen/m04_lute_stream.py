"""Language model over lute tablature: generators from raw tab lines to batches, then a small causal transformer."""
import itertools
import random
import re
import time
from typing import Iterator

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

LETTERS = "abcdefghik"
COURSES = 6
DURATIONS = ("w", "h", "q", "e", "s")
TOKEN = re.compile(r"(?P<dur>[whqes])?(?P<frets>[a-k\-]{6})(?P<bar>\|)?")


def raw_pieces(n: int, seed: int) -> list[str]:
    """What a tab editor would export: one string a piece."""
    rng = random.Random(seed)
    pieces = []
    for _ in range(n):
        cells = []
        for i in range(rng.randint(60, 90)):
            frets = ["-"] * COURSES
            for c in rng.sample(range(COURSES), rng.choice((1, 1, 2, 3))):
                frets[c] = LETTERS[min(9, int(rng.expovariate(0.5)))]
            cells.append(rng.choice(DURATIONS) + "".join(frets) + ("|" if i % 4 == 3 else ""))
        pieces.append(" ".join(cells))
    return pieces


class Vocabulary:
    def __init__(self):
        words = ["<pad>", "<s>", "|"] + [f"d:{d}" for d in DURATIONS]
        words += [f"{c}:{f}" for c in range(COURSES) for f in LETTERS]
        self.index = {w: i for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index)


def transpose(frets: str, by: int) -> str:
    return "".join(f if f == "-" else LETTERS[max(0, min(9, LETTERS.index(f) + by))] for f in frets)


def tokenize(piece: str, vocab: Vocabulary, by: int = 0) -> list[int]:
    out = [vocab.index["<s>"]]
    for m in TOKEN.finditer(piece):
        if m["dur"]:
            out.append(vocab.index[f"d:{m['dur']}"])
        for course, fret in enumerate(transpose(m["frets"], by)):
            if fret != "-":
                out.append(vocab.index[f"{course}:{fret}"])
        if m["bar"]:
            out.append(vocab.index["|"])
    return out


def forever(pieces, seed) -> Iterator[str]:
    rng = random.Random(seed)
    while True:
        yield from rng.sample(pieces, len(pieces))


def token_stream(pieces: Iterator[str], vocab) -> Iterator[int]:
    for piece in pieces:
        versions = [tokenize(piece, vocab, by) for by in range(-2, 3)]
        yield from random.choice([v for v in versions if len(v) > 32])


def windows(stream: Iterator[int], length: int) -> Iterator[torch.Tensor]:
    while True:
        yield torch.tensor(list(itertools.islice(stream, length + 1)))


def batches(items: Iterator[torch.Tensor], size: int) -> Iterator[torch.Tensor]:
    while True:
        yield torch.stack(list(itertools.islice(items, size)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class TabLM(nn.Module):
    def __init__(self, vocab, length, d=32, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.blocks = nn.Sequential(*(Block(d, 2) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        return self.out(self.norm(self.blocks(h)))


def main():
    torch.manual_seed(0)
    random.seed(0)
    device = xm.xla_device()
    vocab, length = Vocabulary(), 64
    feed = batches(windows(token_stream(forever(raw_pieces(120, 1), 2), vocab), length), 16)
    model = TabLM(len(vocab), length).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    smoothed, start = None, time.time()
    for step, batch in enumerate(itertools.islice(feed, 240)):
        batch = batch.to(device)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        value = loss.item()
        smoothed = value if smoothed is None else 0.98 * smoothed + 0.02 * value
        xm.mark_step()
        if step % 50 == 0:
            print(f"{step:4d}  loss {smoothed:.3f}  {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
