"""Finds odd machine vibrations: an autoencoder compiled with inductor, two window lengths."""
import collections
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

LENGTHS = (64, 96)
KEEP = 16


class Windows(Dataset):
    def __init__(self, n, seed, odd=0.0):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for i in range(n):
            t = torch.arange(LENGTHS[i % 2]).float()
            f = 0.2 + 0.3 * torch.rand((), generator=g)
            y = torch.sin(f * t) + 0.3 * torch.sin(2 * f * t) + 0.05 * torch.randn(len(t), generator=g)
            bad = bool(torch.rand((), generator=g) < odd)
            if bad:
                y += 0.8 * torch.sign(torch.sin(1.7 * t))
            self.rows.append((y, bad))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class SameLength(BatchSampler):
    def __init__(self, data, size, seed):
        self.size, self.gen = size, torch.Generator().manual_seed(seed)
        self.groups = collections.defaultdict(list)
        for i, (y, _) in enumerate(data.rows):
            self.groups[len(y)].append(i)

    def __iter__(self):
        out = []
        for rows in self.groups.values():
            order = torch.tensor(rows)[torch.randperm(len(rows), generator=self.gen)]
            out += [b.tolist() for b in order.split(self.size) if len(b) == self.size]
        for i in torch.randperm(len(out), generator=self.gen).tolist():
            yield out[i]

    def __len__(self):
        return sum(len(r) // self.size for r in self.groups.values())


class Bottleneck(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(length, 48), nn.Tanh(), nn.Linear(48, KEEP))
        self.up = nn.Sequential(nn.Linear(KEEP, 48), nn.Tanh(), nn.Linear(48, length))

    def forward(self, y):
        return (self.up(self.down(y)) - y).pow(2).mean(-1)


def join(rows):
    return torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


def separation(models, loader):
    good, bad = [], []
    with torch.no_grad():
        for y, flag in loader:
            err = models[y.shape[1]](y)
            good.append(err[~flag])
            bad.append(err[flag])
    return (torch.cat(bad).mean() / torch.cat(good).mean()).item()


def main():
    torch.manual_seed(0)
    nets = nn.ModuleDict({str(n): Bottleneck(n) for n in LENGTHS})
    models = {n: torch.compile(nets[str(n)], dynamic=False) for n in LENGTHS}
    data, test = Windows(960, 1), Windows(384, 2, odd=0.2)
    train = DataLoader(data, batch_sampler=SameLength(data, 24, 3), collate_fn=join)
    valid = DataLoader(test, batch_sampler=SameLength(test, 24, 4), collate_fn=join)
    opt = torch.optim.Adam(nets.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.95)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, 61):
            for y, _ in train:
                loss = models[y.shape[1]](y).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                step += 1
                if step % 200 == 0:
                    print(f"step {step} loss {loss.item():.4f}")
            sched.step()
            if epoch % 15 == 0:
                print(f"epoch {epoch} separation {separation(models, valid):.2f}")
                torch.save(nets.state_dict(), os.path.join(folder, f"{epoch}.pt"))


if __name__ == "__main__":
    main()
