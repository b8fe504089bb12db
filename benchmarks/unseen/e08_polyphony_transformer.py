"""A small transformer over event sequences of piano music, compiled with the inductor backend."""
import argparse
import logging
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("polyphony")
EVENTS, PAD = 64, 0


def write_phrases(n, rng, shortest=12, longest=40):
    phrases = []
    for _ in range(n):
        note, phrase = rng.randrange(20, 44), []
        for _ in range(rng.randint(shortest, longest)):
            note = min(EVENTS - 1, max(1, note + rng.choice([-4, -2, -1, 1, 2, 3])))
            phrase.append(note)
        phrases.append(torch.tensor(phrase))
    return phrases


def bucketed_batches(phrases, batch_size, rng):
    """Phrases of about the same length together, so that little is padding."""
    order = sorted(range(len(phrases)), key=lambda i: len(phrases[i]))
    groups = [order[i : i + batch_size] for i in range(0, len(order) - batch_size + 1, batch_size)]
    rng.shuffle(groups)
    for group in groups:
        yield nn.utils.rnn.pad_sequence([phrases[i] for i in group], batch_first=True, padding_value=PAD)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mix = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mix.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class EventModel(nn.Module):
    def __init__(self, width=32, heads=2, depth=1, longest=64):
        super().__init__()
        self.events = nn.Embedding(EVENTS, width, padding_idx=PAD)
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, EVENTS)

    def forward(self, ids):
        x = self.events(ids) + self.places[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phrases", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    rng = random.Random(0)

    phrases = write_phrases(args.phrases, rng)
    model = EventModel()
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        start, losses = time.perf_counter(), []
        for ids in bucketed_batches(phrases, args.batch_size, rng):
            logits = compiled(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        log.info("epoch %d: loss %.3f in %.1f s", epoch, sum(losses) / len(losses), time.perf_counter() - start)


if __name__ == "__main__":
    main()
