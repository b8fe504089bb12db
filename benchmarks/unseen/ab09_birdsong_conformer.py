"""Birdsong tagger over padded spectrogram clips; the encoder is compiled with aot_eager."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MELS, SPECIES, CLIP = 20, 5, 48


class Clips(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            length = int(torch.randint(20, CLIP + 1, (1,), generator=g))
            y = int(torch.randint(0, SPECIES, (1,), generator=g))
            spec = torch.randn(length, MELS, generator=g)
            spec[:, y * 4:y * 4 + 4] += 1.2 * torch.sin(torch.arange(length) / (y + 2.0)).unsqueeze(1)
            self.rows.append((spec, length, y))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad_clips(rows):
    out = torch.zeros(len(rows), CLIP, MELS)
    for i, (spec, length, _) in enumerate(rows):
        out[i, :length] = spec
    return out, torch.tensor([r[1] for r in rows]), torch.tensor([r[2] for r in rows])


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.depth = nn.Conv1d(dim, dim, 5, padding=2, groups=dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, padded):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        score = score.masked_fill(padded[:, None, None], -1e4)
        x = x + self.proj((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + F.silu(self.depth(self.n2(x).transpose(1, 2))).transpose(1, 2)


class Tagger(nn.Module):
    def __init__(self, dim=24, depth=4, skip=0.2):
        super().__init__()
        self.enter = nn.Linear(MELS, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, SPECIES)
        self.skip, self.rng = skip, random.Random(5)
        self.active = [True] * depth

    def draw_depth(self):
        self.active = [self.rng.random() >= self.skip for _ in self.blocks]

    def train(self, mode=True):
        self.active = [True] * len(self.blocks)
        return super().train(mode)

    def forward(self, spec, lengths):
        x = self.enter(spec)
        live = torch.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        for block, on in zip(self.blocks, self.active):
            if on:
                x = block(x, ~live)
        return self.head((x * live.unsqueeze(-1)).sum(1) / lengths.unsqueeze(1))


def accuracy(model, loader):
    model.eval()
    hits = n = 0
    with torch.no_grad():
        for spec, lengths, y in loader:
            hits += int((model(spec, lengths).argmax(-1) == y).sum())
            n += len(y)
    model.train()
    return hits / n


def main():
    torch.manual_seed(0)
    train = DataLoader(Clips(480, 1), batch_size=12, shuffle=True, drop_last=True, collate_fn=pad_clips)
    valid = DataLoader(Clips(96, 2), batch_size=12, collate_fn=pad_clips)
    net = Tagger()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=6 * len(train))
    for epoch in range(6):
        for spec, lengths, y in train:
            net.draw_depth()
            loss = F.cross_entropy(model(spec, lengths), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
