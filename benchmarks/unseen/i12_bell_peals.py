"""Next-bell model for change ringing: a causal transformer with rotary positions, trained on peals of several lengths."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

BELLS = 8
END = BELLS


def peal(rng, changes):
    """Rows of a plain hunt with some dodges; the bells of all rows one after the other."""
    row, out = list(range(BELLS)), []
    for change in range(changes):
        start = change % 2
        if rng.random() < 0.1:
            start = 1 - start
        for i in range(start, BELLS - 1, 2):
            row[i], row[i + 1] = row[i + 1], row[i]
        out += row
    return out + [END]


class PealBatches:
    """Batches of peals; the peals of a batch have the same number of changes, so nothing is padded."""

    def __init__(self, peals, batch, changes, seed):
        self.rng, self.batch = random.Random(seed), batch
        self.by_changes = {c: [peal(self.rng, c) for _ in range(peals)] for c in changes}

    def draw(self):
        changes = self.rng.choice(list(self.by_changes))
        rows = self.rng.sample(self.by_changes[changes], self.batch)
        return torch.tensor(rows)


class Rotary:
    """Sines and cosines for each position; made when a length is first seen and kept."""

    def __init__(self, size, base=1000.0):
        self.frequency = base ** (-torch.arange(0, size, 2) / size)
        self.tables = {}

    def table(self, length):
        if length not in self.tables:
            angle = torch.arange(length).unsqueeze(1) * self.frequency
            self.tables[length] = (angle.cos(), angle.sin())
        return self.tables[length]

    def __call__(self, x):
        cos, sin = self.table(x.shape[-2])
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width, heads, rotary):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(b, n, w))


class Layer(nn.Module):
    def __init__(self, width, heads, rotary):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, rotary)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class RingingModel(nn.Module):
    def __init__(self, width=32, heads=2, depth=2):
        super().__init__()
        self.token = nn.Embedding(BELLS + 1, width)
        rotary = Rotary(width // heads)
        self.layers = nn.ModuleList(Layer(width, heads, rotary) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BELLS + 1)

    def forward(self, ids):
        x = self.token(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@torch.no_grad()
def next_bell_accuracy(net, ids):
    net.eval()
    right = (net(ids[:, :-1]).argmax(-1) == ids[:, 1:]).float().mean().item()
    net.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--changes", type=int, nargs="+", default=[3, 4, 5, 6, 7, 8])
    args = parser.parse_args()
    torch.manual_seed(3)
    batches = PealBatches(100, args.batch, args.changes, seed=3)
    held_out = PealBatches(32, 32, [6], seed=4).draw()
    net = RingingModel()
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    window = torch.zeros(())
    for step in range(1, args.steps + 1):
        ids = batches.draw()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        window += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: loss {window.item() / 50:.3f}, held-out accuracy {next_bell_accuracy(net, held_out):.3f}")
            window.zero_()


if __name__ == "__main__":
    main()
