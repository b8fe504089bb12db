"""Two-tower retrieval: users (their click history) against items, with in-batch negatives."""
import argparse
import logging
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("two_tower")


class Clicks(Dataset):
    """(history of item ids, next item clicked)"""

    def __init__(self, users, items, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(users):
            taste = rng.randrange(1, items - 50)
            n = min(24, int(rng.expovariate(1 / 5)) + 2)
            history = [taste + rng.randrange(50) for _ in range(n)]
            self.rows.append((torch.tensor(history), taste + rng.randrange(50)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    histories, targets = zip(*rows)
    history = pad_sequence(histories, batch_first=True)
    return history, torch.tensor(targets)


class UserTower(nn.Module):
    def __init__(self, embedding, dim):
        super().__init__()
        self.embedding = embedding
        self.query = nn.Linear(dim, 1)
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, history):
        e = self.embedding(history)
        score = self.query(e).squeeze(-1).masked_fill(history == 0, -1e4)
        pooled = (score.softmax(-1).unsqueeze(-1) * e).sum(1)
        return F.normalize(self.out(pooled), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.items = nn.Embedding(items, dim, padding_idx=0)
        self.user_tower = UserTower(self.items, dim)
        self.item_tower = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.log_temperature = nn.Parameter(torch.tensor(-2.0))

    def forward(self, history, target):
        u = self.user_tower(history)
        v = F.normalize(self.item_tower(self.items(target)), dim=-1)
        return u @ v.T / self.log_temperature.exp()


class RecallMeter:
    """Recall at k among the batch's items, as a moving average."""

    def __init__(self, k, momentum=0.9):
        self.k, self.momentum, self.value = k, momentum, None

    def update(self, logits, labels):
        top = logits.topk(self.k, dim=-1).indices
        hit = (top == labels[:, None]).any(-1).float().mean()
        hit = hit.item()
        self.value = hit if self.value is None else self.momentum * self.value + (1 - self.momentum) * hit

    def __str__(self):
        return f"recall@{self.k} {self.value:.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--log-every", type=int, default=10)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    device = torch_xla.device()
    data = Clicks(64 * 16, args.items, seed=1)
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    model = TwoTower(args.items, args.dim).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    labels = torch.arange(args.batch_size, device=device)
    meter = RecallMeter(k=5)
    step = 0
    for epoch in range(args.epochs):
        for history, target in pl.MpDeviceLoader(loader, device):
            logits = model(history, target)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(logits.detach(), labels)
            step += 1
            if step % args.log_every == 0:
                log.info("epoch %d step %d loss %.3f %s", epoch, step, loss.item(), meter)


if __name__ == "__main__":
    main()
