"""Keyword spotting: a small convolutional network on log-mel like features, trained on an XLA device."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--mels", type=int, default=32)
    p.add_argument("--words", type=int, default=10)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


class Utterances(Dataset):
    """Each word is a band pattern; the speaker decides how long the word takes."""

    def __init__(self, n, words, mels, seed):
        rng = np.random.default_rng(seed)
        proto = np.random.default_rng(0).normal(size=(words, mels, 8)).astype(np.float32)
        self.items = []
        for _ in range(n):
            w = int(rng.integers(words))
            frames = int(rng.integers(64, 97))
            at = np.linspace(0, 7, frames).astype(int)
            x = proto[w][:, at] + 0.9 * rng.normal(size=(mels, frames)).astype(np.float32)
            self.items.append((x.astype(np.float32), w))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


MAX_FRAMES = 96


def collate(samples):
    xs, ys = zip(*samples)
    out = torch.zeros(len(xs), xs[0].shape[0], MAX_FRAMES)
    lengths = torch.tensor([x.shape[1] for x in xs])
    for row, x in zip(out, xs):
        row[:, : x.shape[1]] = torch.from_numpy(x)
    return out, lengths, torch.tensor(ys)


class SpecAugment:
    """Blanks one band of frequencies and one stretch of time per batch."""

    def __init__(self, max_f=6, max_t=12):
        self.max_f, self.max_t = max_f, max_t

    def __call__(self, x):
        x = x.clone()
        f0 = random.randrange(x.shape[1] - self.max_f)
        t0 = random.randrange(60 - self.max_t)
        x[:, f0:f0 + random.randint(1, self.max_f)] = 0.0
        x[:, :, t0:t0 + random.randint(1, self.max_t)] = 0.0
        return x


class KWSNet(nn.Module):
    def __init__(self, mels, words, width=48):
        super().__init__()
        self.stem = nn.Conv1d(mels, width, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 3, padding=1)) for _ in range(3))
        self.head = nn.Linear(width, words)

    def forward(self, x, lengths):
        mask = (torch.arange(x.shape[-1], device=x.device)[None] < lengths[:, None]).float()[:, None]
        h = self.stem(x) * mask
        for b in self.blocks:
            h = (h + b(h)) * mask
        return self.head(h.sum(-1) / lengths[:, None].float())


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = torch.zeros((), device=device)
    n = 0
    for x, lengths, y in loader:
        logits = model(x.to(device), lengths.to(device))
        right += (logits.argmax(-1) == y.to(device)).sum()
        n += len(y)
        torch_xla.sync()
    return right.item() / n


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch_xla.device()
    train = DataLoader(Utterances(264, args.words, args.mels, 1), args.batch_size, shuffle=True, collate_fn=collate,
                       drop_last=True)
    test = DataLoader(Utterances(240, args.words, args.mels, 2), 48, collate_fn=collate)
    model = KWSNet(args.mels, args.words).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    augment = SpecAugment()
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros((), device=device)
        for x, lengths, y in train:
            x = augment(x.to(device))
            loss = F.cross_entropy(model(x, lengths.to(device)), y.to(device), label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
            torch_xla.sync()
        print(f"epoch {epoch}: loss {total.item() / len(train):.3f}, accuracy {evaluate(model, test, device):.3f}")


if __name__ == "__main__":
    main()
