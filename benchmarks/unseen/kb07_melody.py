"""Folk-melody generator: a small causal transformer trained on synthetic jigs.

After training, tunes are sampled note by note with a key/value cache.
"""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(17)
torch.set_num_threads(1)

SCALE = 24
BAR = 6
LENGTH = 48


def jig(n):
    """Tunes that repeat a bar, transposed by a step, around a tonic."""
    tonic = torch.randint(6, 14, (n, 1))
    bar = torch.randint(-3, 4, (n, BAR))
    shift = torch.tensor([0, 1, 0, -1, 0, 2, 1, 0]).repeat_interleave(BAR)
    notes = tonic + bar.repeat(1, LENGTH // BAR) + shift
    return notes.clamp(0, SCALE - 1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.keys = None
        self.values = None
        self.filled = 0

    def reset(self, n, dim):
        self.keys = torch.zeros(n, self.heads, LENGTH, dim // self.heads)
        self.values = torch.zeros_like(self.keys)
        self.filled = 0

    def split(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]

    def forward(self, x):
        q, k, v = self.split(x)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).flatten(-2))

    def decode(self, x):
        q, k, v = self.split(x)
        self.keys[:, :, self.filled] = k[:, :, 0]
        self.values[:, :, self.filled] = v[:, :, 0]
        self.filled += 1
        mask = (torch.arange(LENGTH) < self.filled)[None]
        out = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return self.proj(out.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, cached=False):
        h = self.n1(x)
        x = x + (self.attn.decode(h) if cached else self.attn(h))
        return x + self.mlp(self.n2(x))


class TuneModel(nn.Module):
    def __init__(self, dim=64, heads=4, depth=4):
        super().__init__()
        self.dim = dim
        self.note = nn.Embedding(SCALE, dim)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, SCALE)

    def forward(self, notes):
        x = self.note(notes) + self.place[:notes.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def next_note(self, note, place):
        x = self.note(note)[:, None] + place
        for block in self.blocks:
            x = block(x, cached=True)
        return self.out(x[:, 0])


@torch.no_grad()
def compose(model, step, first, temperature=0.8):
    for block in model.blocks:
        block.attn.reset(len(first), model.dim)
    tune = [first]
    for i in range(LENGTH - 1):
        logits = step(tune[-1], model.place[i].clone())
        probs = F.softmax(logits / temperature, -1)
        tune.append(torch.multinomial(probs, 1)[:, 0])
    return torch.stack(tune, 1)


def main():
    model = TuneModel()
    fast = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    t0 = time.time()
    for it in range(200):
        notes = jig(32)
        logits = fast(notes[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), notes[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 50 == 49:
            print(f"step {it + 1} nll {loss.item():.3f} {time.time() - t0:.1f}s")
    model.eval()
    step = torch.compile(model.next_note, backend="aot_eager")
    for k in range(4):
        tunes = compose(model, step, jig(16)[:, 0])
        steps = (tunes[:, 1:] - tunes[:, :-1]).abs().float().mean()
        print(f"set {k}: mean interval {steps.item():.2f} {time.time() - t0:.1f}s", tunes[0, :12].tolist())


if __name__ == "__main__":
    main()
