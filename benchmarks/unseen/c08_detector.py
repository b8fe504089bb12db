"""One-dimensional event detection: candidate boxes are scored, filtered and refined; the background weight is annealed."""
import argparse
import logging

import numpy as np
import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("detector")

SCHEDULE = {"background": 1, "stage": "warmup"}


def signals(rng, batch, length):
    """Signals with one event each, and the event's start and end as fractions of the length."""
    x = rng.normal(scale=0.3, size=(batch, length)).astype(np.float32)
    start = rng.integers(4, length // 2, batch)
    width = rng.integers(8, length // 3, batch)
    for row, (s, w) in enumerate(zip(start, width)):
        x[row, s:s + w] += 1.5
    return x, np.stack([start, start + width], 1).astype(np.float32) / length


class Backbone(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Conv1d(1, width, 7, stride=2, padding=3)
        self.b = nn.Conv1d(width, width, 5, stride=2, padding=2)

    def forward(self, x):
        return torch.relu(self.b(torch.relu(self.a(x[:, None]))))


class Detector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.backbone = Backbone(width)
        self.score = nn.Conv1d(width, 1, 1)
        self.box = nn.Conv1d(width, 2, 1)
        self.refine = nn.Sequential(nn.Linear(width + 2, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x):
        h = self.backbone(x)
        score = self.score(h).squeeze(1)
        box = self.box(h).transpose(1, 2)
        h = h.transpose(1, 2)
        keep = score.detach() > score.detach().mean(1, keepdim=True)
        candidates = torch.cat([h[keep], box[keep]], dim=1)
        row = torch.arange(len(x))[:, None].expand_as(keep)[keep]
        return score, self.refine(candidates) + box[keep], row


def assign(boxes, count):
    centers = (torch.arange(count) + 0.5) / count
    return ((centers >= boxes[:, :1]) & (centers <= boxes[:, 1:])).float()


def losses(score, boxes, target, row):
    inside = assign(target, score.shape[1])
    weight = torch.where(inside > 0, 1.0, 1.0 / SCHEDULE["background"])
    classification = nn.functional.binary_cross_entropy_with_logits(score, inside, weight)
    regression = nn.functional.l1_loss(boxes, target[row])
    return classification + regression


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--length", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = Detector()
    detector = torch.compile(net, backend="aot_eager")
    criterion = torch.compile(losses, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(args.steps):
        if step % 5 == 0:
            SCHEDULE["background"] = 1 + step // 5
            SCHEDULE["stage"] = "warmup" if step < 15 else "full"
        x, target = (torch.from_numpy(a) for a in signals(rng, 16, args.length))
        score, boxes, row = detector(x)
        loss = criterion(score, boxes, target, row)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 15 == 0:
            log.info("%s step %d loss %.3f candidates %d", SCHEDULE["stage"], step, loss.item(), len(boxes))


if __name__ == "__main__":
    main()
