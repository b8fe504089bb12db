"""Class-incremental learning of leaf shapes: descriptors of past tasks are replayed from a memory on the device."""
import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

DESCRIPTOR, CLASSES, TASKS = 32, 12, 3
PER_TASK = CLASSES // TASKS


def outlines(task, n, rng):
    """Radii of leaf outlines at even angles: classes differ in lobes, depth and asymmetry."""
    theta = torch.linspace(0, 6.2832, DESCRIPTOR + 1)[:-1]
    rows, labels = [], []
    for _ in range(n):
        k = task * PER_TASK + rng.randrange(PER_TASK)
        lobes, depth, skew = 2 + k % 5, 0.15 + 0.05 * (k // 5), 0.1 * (k % 3)
        phase = rng.gauss(0, 0.2)
        rows.append(1 + depth * torch.cos(lobes * theta + phase) + skew * torch.sin(theta))
        labels.append(k)
    x = torch.stack(rows)
    return x + 0.06 * torch.randn(x.shape), torch.tensor(labels)


class LeafNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(DESCRIPTOR, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.features(x))


class Memory:
    """Descriptors, labels and old logits; as many as `capacity`, older ones are overwritten."""

    def __init__(self, capacity, device):
        self.capacity, self.device = capacity, device
        self.x = torch.empty(0, DESCRIPTOR, device=device)
        self.y = torch.empty(0, dtype=torch.long, device=device)
        self.logits = torch.empty(0, CLASSES, device=device)
        self.position = 0

    def __len__(self):
        return self.x.shape[0]

    def keep(self, x, y, logits):
        n = x.shape[0]
        if len(self) < self.capacity:
            self.x = torch.cat([self.x, x])
            self.y = torch.cat([self.y, y])
            self.logits = torch.cat([self.logits, logits])
            return
        slots = (torch.arange(n) + self.position).remainder(self.capacity).to(self.device)
        self.x.index_copy_(0, slots, x)
        self.y.index_copy_(0, slots, y)
        self.logits.index_copy_(0, slots, logits)
        self.position = (self.position + n) % self.capacity

    def draw(self, n):
        rows = torch.randint(len(self), (n,)).to(self.device)
        return self.x[rows], self.y[rows], self.logits[rows]


class DarkReplay:
    """Replays labels and logits, as in dark experience replay."""

    def __init__(self, args):
        self.args = args
        self.device = torch_xla.device()
        self.net = LeafNet().to(self.device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=args.lr, momentum=0.9)
        self.memory = Memory(args.capacity, self.device)
        self.rng = random.Random(args.seed)

    def observe(self, x, y):
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        if len(self.memory):
            old_x, old_y, old_logits = self.memory.draw(self.args.replay)
            again = self.net(old_x)
            loss = loss + 0.5 * F.cross_entropy(again, old_y) + 0.2 * F.mse_loss(again, old_logits)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        keep = self.args.keep
        self.memory.keep(x[:keep], y[:keep], logits.detach()[:keep])
        xm.mark_step()
        return loss.detach()

    def learn_task(self, task):
        losses = []
        for _ in range(self.args.steps):
            x, y = outlines(task, self.args.batch, self.rng)
            losses.append(self.observe(x.to(self.device), y.to(self.device)))
        return torch.stack(losses).mean().item()

    @torch.no_grad()
    def accuracy(self, upto):
        scores = []
        for task in range(upto + 1):
            x, y = outlines(task, 120, self.rng)
            right = (self.net(x.to(self.device)).argmax(-1) == y.to(self.device)).float().mean()
            scores.append(right.item())
        return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--replay", type=int, default=32)
    parser.add_argument("--keep", type=int, default=16)
    parser.add_argument("--capacity", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    learner = DarkReplay(args)
    snapshots = []
    for task in range(TASKS):
        loss = learner.learn_task(task)
        scores = " ".join(f"{s:.2f}" for s in learner.accuracy(task))
        snapshots.append(copy.deepcopy(learner.net).requires_grad_(False))
        print(f"task {task}: loss {loss:.3f}, accuracy by task {scores}, {len(learner.memory)} in memory")


if __name__ == "__main__":
    main()
