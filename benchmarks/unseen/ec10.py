"""Tagging of variable-length event sequences with a temporal conv net; lengths fall into two padded buckets."""
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

EVENTS, TAGS = 40, 6
BUCKETS = (32, 64)


def make_data(n, seed):
    """The tag at t depends on the event there and on the nearest marker event before it."""
    rule = torch.randint(TAGS, (EVENTS, 4), generator=torch.Generator().manual_seed(7))
    g = torch.Generator().manual_seed(seed)
    data = []
    for _ in range(n):
        size = int(torch.randint(12, BUCKETS[-1] + 1, (1,), generator=g))
        ev = torch.randint(1, EVENTS, (size,), generator=g)
        marker = ev < 13
        last = torch.where(marker, torch.arange(size), 0).cummax(0).values
        data.append((ev, rule[ev, ev[last] % 4]))
    return data


def bucketed_batches(data, batch, shuffle):
    """Groups by bucket, pads to its width and to a full batch: every batch has one of two shapes."""
    groups = defaultdict(list)
    for i in (torch.randperm(len(data)) if shuffle else torch.arange(len(data))).tolist():
        width = next(b for b in BUCKETS if len(data[i][0]) <= b)
        groups[width].append(i)
        if len(groups[width]) == batch:
            yield pad([data[j] for j in groups.pop(width)], width, batch)
    for width, rest in groups.items():
        yield pad([data[j] for j in rest], width, batch)


def pad(rows, width, batch):
    ev = torch.zeros(batch, width, dtype=torch.long)
    tag = torch.full((batch, width), -100)
    for r, (e, t) in enumerate(rows):
        ev[r, :len(e)] = e
        tag[r, :len(t)] = t
    return ev, tag


class CausalBlock(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(dim, 2 * dim, 3, dilation=dilation)
        self.scale = nn.Parameter(torch.ones(dim, 1))

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
        return x + self.scale * torch.tanh(a) * torch.sigmoid(b)


class Tagger(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(EVENTS, dim)
        self.blocks = nn.Sequential(*(CausalBlock(dim, d) for d in (1, 2, 4)))
        self.head = nn.Linear(dim, TAGS)

    def forward(self, ev):
        return self.head(self.blocks(self.emb(ev).transpose(1, 2)).transpose(1, 2))


class History(list):
    def log(self, epoch, **values):
        self.append({k: v.item() if torch.is_tensor(v) else v for k, v in values.items()})
        print(f"epoch {epoch} " + " ".join(f"{k} {v:.3f}" for k, v in self[-1].items()), flush=True)

    def worse(self, key, patience):
        best = max(range(len(self)), key=lambda i: self[i][key])
        return len(self) - 1 - best >= patience


@torch.no_grad()
def accuracy(net, data, batch):
    right, seen = torch.zeros(()), torch.zeros(())
    for ev, tag in bucketed_batches(data, batch, shuffle=False):
        keep = tag >= 0
        right += ((net(ev).argmax(-1) == tag) & keep).sum()
        seen += keep.sum()
    return right / seen


def main(epochs=14, batch=32):
    torch.manual_seed(0)
    train, test = make_data(1200, 0), make_data(200, 1)
    net = Tagger()
    fast = torch.compile(net, dynamic=False)
    opt = torch.optim.AdamW(net.parameters(), 3e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)
    for width in BUCKETS:                                   # compile both shapes before timing
        fast(torch.zeros(batch, width, dtype=torch.long)).sum().backward()
    opt.zero_grad()
    hist = History()
    for epoch in range(epochs):
        t0, total, n = time.time(), torch.zeros(()), 0
        for ev, tag in bucketed_batches(train, batch, shuffle=True):
            loss = F.cross_entropy(fast(ev).flatten(0, 1), tag.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            total += loss.detach()
            n += 1
        sched.step()
        hist.log(epoch, loss=total / n, accuracy=accuracy(net, test, batch), seconds=time.time() - t0)
        if hist.worse("accuracy", patience=4):
            break


if __name__ == "__main__":
    main()
