"""Promoter strength regression from synthetic E. coli upstream sequences.

A two-branch network: one-hot convolution for the -10 / -35 boxes and a k-mer
composition branch. Data lives in a torch Dataset, training in an XLA loop."""
import itertools
import random

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

BASES = "ACGT"
K = 4
SEQ_LEN = 120
KMERS = {"".join(p): i for i, p in enumerate(itertools.product(BASES, repeat=K))}
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def match(window, motif):
    return sum(a == b for a, b in zip(window, motif)) / len(motif)


def synthesize(rng):
    seq = [rng.choice(BASES) for _ in range(SEQ_LEN)]
    gap = rng.choice([15, 16, 17, 18, 19])
    at = rng.randint(60, 75)
    for offset, motif in ((at, "TTGACA"), (at + 6 + gap, "TATAAT")):
        for i, base in enumerate(motif):
            if rng.random() < 0.75:
                seq[offset + i] = base
    seq = "".join(seq)
    score = match(seq[at:at + 6], "TTGACA") + match(seq[at + 6 + gap:at + 12 + gap], "TATAAT")
    score -= 0.15 * abs(gap - 17)
    return seq, score + rng.gauss(0, 0.05)


def one_hot(seq):
    grid = np.zeros((4, len(seq)), dtype=np.float32)
    for position, base in enumerate(seq):
        grid[BASES.index(base), position] = 1.0
    return grid


def composition(seq):
    counts = np.zeros(len(KMERS), dtype=np.float32)
    for strand in (seq, seq.translate(COMPLEMENT)[::-1]):
        for start in range(len(strand) - K + 1):
            counts[KMERS[strand[start:start + K]]] += 1.0
    return counts / counts.sum() * 16.0


class PromoterSet(Dataset):
    def __init__(self, records):
        self.records = records
        values = np.array([r[1] for r in records])
        self.mean, self.std = values.mean(), values.std()

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        seq, strength = self.records[index]
        target = (strength - self.mean) / self.std
        return (torch.from_numpy(one_hot(seq)), torch.from_numpy(composition(seq)),
                torch.tensor(target, dtype=torch.float32))


class PromoterNet(nn.Module):
    def __init__(self, filters=16):
        super().__init__()
        self.motif = nn.Sequential(nn.Conv1d(4, filters, 9, padding=4), nn.ReLU(),
                                   nn.MaxPool1d(4), nn.Conv1d(filters, 32, 7, padding=3), nn.ReLU())
        self.bulk = nn.Sequential(nn.Linear(len(KMERS), 32), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, grid, counts):
        motif = self.motif(grid).amax(2)
        return self.head(torch.cat([motif, self.bulk(counts)], 1)).squeeze(1)


def run_epoch(model, loader, device, optimizer=None):
    total = torch.zeros((), device=device)
    for grid, counts, target in loader:
        grid, counts, target = grid.to(device), counts.to(device), target.to(device)
        with torch.set_grad_enabled(optimizer is not None):
            loss = nn.functional.mse_loss(model(grid, counts), target)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
        total += loss.detach()
        xm.mark_step()
    return total.item() / len(loader)


def main(epochs=24):
    rng = random.Random(9)
    torch.manual_seed(9)
    records = [synthesize(rng) for _ in range(4608)]
    train = DataLoader(PromoterSet(records[:4096]), batch_size=128, shuffle=True, drop_last=True)
    valid = DataLoader(PromoterSet(records[4096:]), batch_size=128)
    device = torch_xla.device()
    model = PromoterNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(epochs):
        fit = run_epoch(model, train, device, optimizer)
        check = run_epoch(model, valid, device)
        print(f"epoch {epoch} train mse {fit:.3f} valid mse {check:.3f}")


if __name__ == "__main__":
    main()
