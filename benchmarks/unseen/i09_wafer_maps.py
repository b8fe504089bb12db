"""Finds failure patterns on wafer maps with a small ConvNet that keeps a log of how long its stages take."""
import argparse
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

PATTERNS = ["none", "centre", "edge", "scratch", "half"]


def wafer_maps(count, side, seed):
    gen = torch.Generator().manual_seed(seed)
    label = torch.randint(0, len(PATTERNS), (count,), generator=gen)
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    radius = (x ** 2 + y ** 2).sqrt()
    shift = 0.5 * (torch.rand(count, 1, 1, generator=gen) - 0.5)
    chance = torch.full((count, side, side), 0.05)
    chance += 0.6 * (label == 1).view(-1, 1, 1) * (radius < 0.35)
    chance += 0.6 * (label == 2).view(-1, 1, 1) * (radius > 0.85)
    chance += 0.7 * (label == 3).view(-1, 1, 1) * ((x - y - shift).abs() < 0.12)
    chance += 0.4 * (label == 4).view(-1, 1, 1) * (x > shift)
    maps = (torch.rand(count, side, side, generator=gen) < chance) & (radius <= 1)
    return maps.float().unsqueeze(1), label


class StageClock:
    """Mean duration of the stages of a model over the last passes."""

    def __init__(self, keep=200):
        self.keep, self.laps = keep, {}

    def lap(self, stage, since):
        now = time.perf_counter()
        self.laps.setdefault(stage, deque(maxlen=self.keep)).append(now - since)
        return now

    def report(self):
        return ", ".join(f"{s} {1e3 * sum(d) / len(d):.2f} ms" for s, d in self.laps.items())


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)


class WaferNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stages = nn.ModuleList([Stage(1, width), Stage(width, 2 * width), Stage(2 * width, 2 * width)])
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, len(PATTERNS))
        self.clock = StageClock()

    def forward(self, maps):
        h = maps
        since = time.perf_counter()
        for i, stage in enumerate(self.stages):
            h = stage(h)
            since = self.clock.lap(f"stage {i}", since)
        return self.head(self.drop(h.mean((2, 3))))


def accuracy(net, maps, label):
    net.eval()
    with torch.no_grad():
        right = (net(maps).argmax(-1) == label).float().mean().item()
    net.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--maps", type=int, default=1500)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(6)
    maps, label = wafer_maps(args.maps, args.side, 1)
    test_maps, test_label = wafer_maps(args.batch, args.side, 2)
    net = WaferNet()
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.epochs * (args.maps // args.batch))
    for epoch in range(args.epochs):
        order = torch.randperm(args.maps)
        total = torch.zeros(())
        for i in range(0, args.maps, args.batch):
            pick = order[i:i + args.batch]
            loss = F.cross_entropy(model(maps[pick]), label[pick], label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() * args.batch / args.maps:.3f}, "
              f"accuracy {accuracy(net, test_maps, test_label):.3f}; {net.clock.report()}")


if __name__ == "__main__":
    main()
