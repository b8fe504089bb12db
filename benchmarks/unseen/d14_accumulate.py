"""Character-level language model with gradient accumulation, clipping, a schedule and early stopping."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset

WORDS = "the a one model loss falls rises slowly again and then stops here now gradient step device".split()
LETTERS = sorted(set("".join(WORDS)) | {" ", "."})
LENGTH = 48


class Sentences(Dataset):
    """Sentences of different lengths, cut or padded to LENGTH + 1 letters."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(5, 15))) + "."
            ids = [LETTERS.index(c) + 1 for c in text][: LENGTH + 1]
            self.rows.append(torch.tensor(ids + [0] * (LENGTH + 1 - len(ids))))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i][:-1], self.rows[i][1:]


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS) + 1, dim, padding_idx=0)
        self.convolutions = nn.ModuleList([nn.Conv1d(dim, 2 * dim, 3, dilation=d) for d in (1, 2, 4)])
        self.head = nn.Linear(dim, len(LETTERS) + 1)

    def forward(self, x):
        h = self.embedding(x).transpose(1, 2)
        for convolution in self.convolutions:
            padding = 2 * convolution.dilation[0]
            h = h + F.glu(convolution(F.pad(h, (padding, 0))), dim=1)
        return self.head(h.transpose(1, 2))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, float("inf"), 0

    def __call__(self, value):
        if value < self.best - 1e-3:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total, count = torch.zeros((), device=device), torch.zeros((), device=device)
    for x, y in loader:
        losses = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=0, reduction="sum")
        total = total + losses
        count = count + (y != 0).sum()
    model.train()
    return (total / count).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--dim", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    train = DataLoader(Sentences(16 * 16, 0), args.batch_size, shuffle=True, drop_last=True)
    valid = pl.MpDeviceLoader(DataLoader(Sentences(64, 1), args.batch_size), device)
    model = Model(args.dim).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    updates = args.epochs * len(train) // args.accumulate
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    stop, history, step = EarlyStopping(2), [], 0
    for epoch in range(args.epochs):
        for x, y in pl.MpDeviceLoader(train, device):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=0)
            (loss / args.accumulate).backward()
            history.append(loss.detach())
            step += 1
            if step % args.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                xm.optimizer_step(optimizer)
                schedule.step()
                optimizer.zero_grad(set_to_none=False)
        value = evaluate(model, valid, device)
        recent = torch.stack(history[-len(train) :]).mean().item()
        print(f"epoch {epoch}: training {recent:.3f} validation {value:.3f} lr {schedule.get_last_lr()[0]:.4f}", flush=True)
        if stop(value):
            break


if __name__ == "__main__":
    main()
