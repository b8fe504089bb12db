"""Weld seam defect classifier: small CNN on x-ray patches, focal loss for the rare classes."""
import argparse
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

CLASSES = ["ok", "pore", "crack", "slag", "undercut"]


@dataclass
class FocalPlan:
    """Starts like plain cross entropy and hardens during training."""
    start: float = 0.5
    end: float = 2.2
    horizon: int = 110
    step: int = 0

    def advance(self):
        self.step += 1

    @property
    def focus(self):
        frac = min(1.0, self.step / self.horizon)
        return round((self.start + (self.end - self.start) * frac) * 4) / 4


@dataclass
class Scoreboard:
    seen: int = 0
    per_class: dict = field(default_factory=lambda: {c: [0, 0] for c in CLASSES})

    def feed(self, logits, target):
        guess = logits.detach().argmax(1)
        for i, name in enumerate(CLASSES):
            mine = target == i
            self.per_class[name][0] += float(((guess == i) & mine).sum())
            self.per_class[name][1] += float(mine.sum())
        self.seen += target.shape[0]

    def summary(self):
        return ", ".join(f"{k}={a / max(b, 1):.2f}" for k, (a, b) in self.per_class.items())


class DownBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, 2, 1)
        self.skip = nn.Conv2d(cin, cout, 1, 2)

    def forward(self, x):
        return F.relu(self.conv(x)) + self.skip(x)


class SeamNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, 1, 1)
        self.b1 = DownBlock(width, width * 2)
        self.b2 = DownBlock(width * 2, width * 4)
        self.head = nn.Linear(width * 4, len(CLASSES))

    def forward(self, x):
        x = self.b2(self.b1(F.relu(self.stem(x))))
        return self.head(x.mean((2, 3)))


class FocalLoss(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.plan = plan

    def forward(self, logits, target):
        logp = F.log_softmax(logits, -1).gather(1, target[:, None]).squeeze(1)
        weight = (1.0 - logp.exp()).clamp_min(1e-4).pow(self.plan.focus)
        return -(weight * logp).mean()


def patches(rng, n, size):
    y = rng.choice(len(CLASSES), size=n, p=[0.5, 0.2, 0.1, 0.1, 0.1])
    x = rng.normal(0, 0.4, (n, 1, size, size)).astype(np.float32)
    for i, c in enumerate(y):
        r, q = rng.integers(4, size - 8, 2)
        if c == 1:
            x[i, 0, r:r + 3, q:q + 3] += 2
        elif c == 2:
            x[i, 0, r, 4:size - 4] += 2
        elif c == 3:
            x[i, 0, r:r + 6, q:q + 2] -= 2
        elif c == 4:
            x[i, 0, :, q] -= 1.5
    return torch.from_numpy(x), torch.from_numpy(y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--size", type=int, default=24)
    args = ap.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    dev = torch_xla.device()
    net = SeamNet().to(dev)
    plan, board = FocalPlan(), Scoreboard()
    crit = FocalLoss(plan)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for it in range(args.steps):
        x, y = (t.to(dev) for t in patches(rng, args.batch, args.size))
        logits = net(x)
        loss = crit(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch_xla.sync()
        board.feed(logits, y)
        plan.advance()
        if (it + 1) % 50 == 0:
            print(f"{it + 1}: loss {loss.item():.4f} | {board.summary()}")


if __name__ == "__main__":
    main()
