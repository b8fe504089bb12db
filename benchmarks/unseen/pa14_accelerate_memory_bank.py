"""Contrastive learning of point sets with a bank of past keys, driven by accelerate."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class PointSets(Dataset):
    def __init__(self, size, points=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.scale = 0.5 + torch.rand(size, 1, 3, generator=g)
        self.raw = F.normalize(torch.randn(size, points, 3, generator=g), dim=-1)

    def __len__(self):
        return len(self.raw)

    def view(self, i):
        angle = 6.28 * torch.rand(1)
        c, s = angle.cos(), angle.sin()
        zero, one = torch.zeros(1), torch.ones(1)
        turn = torch.stack([torch.cat([c, -s, zero]), torch.cat([s, c, zero]), torch.cat([zero, zero, one])])
        return self.raw[i] * self.scale[i] @ turn + 0.02 * torch.randn_like(self.raw[i])

    def __getitem__(self, i):
        return self.view(i), self.view(i)


class PointEncoder(nn.Module):
    def __init__(self, width=48, out=24):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(2 * width, out)

    def forward(self, points):
        h = self.local(points)
        return F.normalize(self.out(torch.cat([h.amax(1), h.mean(1)], -1)), dim=-1)


class ContrastiveModel(nn.Module):
    """InfoNCE against the other keys of the batch and those of the last batches."""

    def __init__(self, temperature=0.1, bank=64):
        super().__init__()
        self.encoder = PointEncoder()
        self.temperature, self.limit = temperature, bank
        self.bank = []

    def similarity(self, q, k):
        keys = torch.cat([k] + list(self.bank))
        return q @ keys.t() / self.temperature

    def forward(self, a, b):
        q, k = self.encoder(a), self.encoder(b)
        logits = self.similarity(q, k)
        target = torch.arange(len(q), device=q.device)
        return F.cross_entropy(logits, target), k

    def remember(self, keys):
        self.bank.append(keys.detach())
        if len(self.bank) > self.limit:
            self.bank.pop(0)


class Journal:
    def __init__(self, accelerator, every):
        self.accelerator, self.every = accelerator, every
        self.sum, self.n = 0.0, 0

    def note(self, step, loss, lr):
        self.sum, self.n = self.sum + loss.detach(), self.n + 1
        if step % self.every == 0:
            mean = self.accelerator.gather(self.sum / self.n).mean().item()
            self.accelerator.print(f"step {step}: loss {mean:.3f} lr {lr:.4f}")
            self.sum, self.n = 0.0, 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--accumulate", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
    loader = DataLoader(PointSets(1024), batch_size=args.batch, shuffle=True, drop_last=True)
    model = ContrastiveModel()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader) // args.accumulate)
    model, opt, loader, schedule = accelerator.prepare(model, opt, loader, schedule)
    step_fn = torch.compile(model, backend="aot_eager")
    journal, step = Journal(accelerator, 64), 0
    for _ in range(args.epochs):
        for a, b in loader:
            with accelerator.accumulate(model):
                loss, keys = step_fn(a, b)
                accelerator.backward(loss)
                opt.step()
                schedule.step()
                opt.zero_grad()
            model.remember(keys)
            step += 1
            journal.note(step, loss, schedule.get_last_lr()[0])


if __name__ == "__main__":
    main()
