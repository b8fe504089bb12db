"""Tagging jets as sets of particles (deep sets), with four micro-batches to a step."""
import argparse
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

MAX_PARTICLES = 30


class Jets(Dataset):
    """Quark jets are narrow and have few particles, gluon jets are wide and have many."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            gluon = int(torch.rand((), generator=g) < 0.5)
            count = int(torch.randint(6, 18, (), generator=g)) + 8 * gluon
            pt = torch.empty(count).exponential_(1.0, generator=g).sort(descending=True).values
            eta_phi = torch.randn(count, 2, generator=g) * (0.15 + 0.08 * gluon)
            self.items.append((torch.cat([pt[:, None] / pt.sum(), eta_phi], 1)[:MAX_PARTICLES], gluon))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad(items):
    x = torch.zeros(len(items), MAX_PARTICLES, 3)
    mask = torch.zeros(len(items), MAX_PARTICLES)
    for i, (p, _) in enumerate(items):
        x[i, :len(p)] = p
        mask[i, :len(p)] = 1
    return x, mask, torch.tensor([label for _, label in items], dtype=torch.float32)


class DeepSet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.rho = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, x, mask):
        h = self.phi(x) * mask[..., None]
        mean = h.sum(1) / mask.sum(1, keepdim=True)
        peak = h.amax(1)
        return self.rho(torch.cat([mean, peak], 1))[:, 0]


class Meter:
    """Sums on the device; read when somebody asks."""

    def __init__(self, device):
        self.total, self.count = torch.zeros((), device=device), 0

    def add(self, value):
        self.total += value.detach()
        self.count += 1

    def read_and_reset(self):
        mean = self.total.item() / max(self.count, 1)
        self.total.zero_()
        self.count = 0
        return mean


@torch.no_grad()
def auc(model, loader, device):
    model.eval()
    scores, labels = [], []
    for x, mask, y in loader:
        scores.append(model(x.to(device), mask.to(device)))
        labels.append(y)
        xm.mark_step()
    s, y = torch.cat(scores).cpu(), torch.cat(labels)
    model.train()
    rank = s.argsort().argsort().float() + 1
    pos = y.sum()
    return ((rank[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--micro", type=int, default=16)
    ap.add_argument("--accumulate", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(9)
    device = xm.xla_device()
    train = DataLoader(Jets(1536, 1), batch_size=args.micro, shuffle=True, collate_fn=pad, drop_last=True)
    test = DataLoader(Jets(384, 2), batch_size=128, collate_fn=pad)
    model = DeepSet().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.995)
    meter = Meter(device)
    xm.mark_step()

    begin, updates = time.perf_counter(), 0
    for epoch in range(args.epochs):
        for i, (x, mask, y) in enumerate(train):
            loss = F.binary_cross_entropy_with_logits(model(x.to(device), mask.to(device)), y.to(device))
            (loss / args.accumulate).backward()
            meter.add(loss)
            if (i + 1) % args.accumulate == 0:
                opt.step()
                opt.zero_grad()
                sched.step()
                updates += 1
                xm.mark_step()
                if updates % 50 == 0:
                    print(f"update {updates}  loss {meter.read_and_reset():.4f}", file=sys.stderr)
    rate = args.epochs * len(train.dataset) / (time.perf_counter() - begin)
    print(f"auc {auc(model, test, device):.4f}  {rate:.0f} jets/s")


if __name__ == "__main__":
    main()
