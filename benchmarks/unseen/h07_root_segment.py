"""Segmentation of plant roots in scans, with warped training tiles and activations summed up by hooks."""
import math
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Plan:
    tile: int = 40
    tiles: int = 160
    batch: int = 16
    epochs: int = 4
    lr: float = 3e-3
    warp: float = 2.5


def bilinear(image, y, x):
    """One pixel between four of a nested list."""
    last = len(image) - 1
    y, x = min(max(y, 0.0), last), min(max(x, 0.0), last)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, last), min(x0 + 1, last)
    dy, dx = y - y0, x - x0
    top = image[y0][x0] * (1 - dx) + image[y0][x1] * dx
    low = image[y1][x0] * (1 - dx) + image[y1][x1] * dx
    return top * (1 - dy) + low * dy


class RootTiles(Dataset):
    def __init__(self, plan, seed, augment):
        self.plan, self.augment = plan, augment
        self.rng = random.Random(seed)
        self.items = [self.grow() for _ in range(plan.tiles)]

    def grow(self):
        side = self.plan.tile
        mask = torch.zeros(side, side)
        for _ in range(self.rng.randint(2, 4)):
            x, heading = self.rng.uniform(5, side - 5), 0.0
            for y in range(side):
                heading += self.rng.gauss(0, 0.15)
                x = min(max(x + math.sin(heading), 1), side - 2)
                mask[y, int(x):int(x) + 2] = 1.0
        soil = F.avg_pool2d(torch.rand(1, 1, side + 4, side + 4), 5, 1)[0, 0]
        return soil * 1.5 + 0.5 * mask + 0.2 * torch.randn(side, side), mask

    def warp(self, scan, mask):
        side, size = self.plan.tile, self.plan.warp
        phase = [self.rng.uniform(0, 2 * math.pi) for _ in range(4)]
        scan, mask = scan.tolist(), mask.tolist()
        out, label = [], []
        for y in range(side):
            row, marks = [], []
            for x in range(side):
                sy = y + size * math.sin(x / 6 + phase[0]) * math.cos(y / 9 + phase[1])
                sx = x + size * math.sin(y / 7 + phase[2]) * math.cos(x / 8 + phase[3])
                row.append(bilinear(scan, sy, sx))
                marks.append(1.0 if bilinear(mask, sy, sx) > 0.5 else 0.0)
            out.append(row)
            label.append(marks)
        return torch.tensor(out), torch.tensor(label)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        scan, mask = self.items[i]
        if self.augment:
            scan, mask = self.warp(scan, mask)
        return scan.unsqueeze(0), mask.unsqueeze(0)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class RootNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.a, self.b, self.c = Block(1, width), Block(width, 2 * width), Block(2 * width, 2 * width)
        self.d, self.e = Block(4 * width, width), Block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        e = self.e(torch.cat([F.interpolate(d, scale_factor=2), a], 1))
        return self.head(e)


class ActivationWatch:
    """Mean activation of each block, for the plots of dead channels."""

    def __init__(self, net):
        self.sums = {}
        for name, module in net.named_children():
            if isinstance(module, Block):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def note(module, args, output):
            mean = output.detach().mean()
            self.sums[name] = self.sums.get(name, 0.0) * 0.9 + 0.1 * mean
            torch_xla.sync()
        return note

    def report(self):
        values = torch.stack(list(self.sums.values())).tolist()
        return " ".join(f"{k}={v:.2f}" for k, v in zip(self.sums, values))


def dice_loss(logits, mask):
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    dice = (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return 1 - dice.mean() + F.binary_cross_entropy_with_logits(logits, mask)


def main():
    torch.manual_seed(0)
    plan = Plan()
    device = torch_xla.device()
    net = RootNet().to(device)
    watch = ActivationWatch(net)
    opt = torch.optim.RMSprop(net.parameters(), lr=plan.lr)
    loader = DataLoader(RootTiles(plan, 6, augment=True), plan.batch, shuffle=True, drop_last=True)
    for epoch in range(plan.epochs):
        total = torch.zeros((), device=device)
        torch_xla.sync()
        for scan, mask in loader:
            scan, mask = scan.to(device), mask.to(device)
            loss = dice_loss(net(scan), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            torch_xla.sync()
        print(f"epoch {epoch} loss {total.item() / len(loader):.3f} {watch.report()}")


if __name__ == "__main__":
    main()
