"""Plankton silhouettes: a small residual net is trained under torch.compile, its moving average is what is shipped."""
import copy
import logging
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("plankton")
SIDE = 24
KINDS = ["copepod", "diatom", "radiolarian", "larva", "chain"]


class Silhouettes(Dataset):
    """Outlines r(phi) with harmonics that differ by kind, drawn when asked for."""

    def __init__(self, count, seed, augment):
        g = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(0, len(KINDS), (count,), generator=g)
        self.turn = 2 * math.pi * torch.rand(count, generator=g)
        self.size = 0.35 + 0.25 * torch.rand(count, generator=g)
        self.augment = augment

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        kind, turn, size = int(self.kind[i]), float(self.turn[i]), float(self.size[i])
        image = torch.zeros(1, SIDE, SIDE)
        for row in range(SIDE):
            for column in range(SIDE):
                x, y = 2 * column / SIDE - 1, 2 * row / SIDE - 1
                phi = math.atan2(y, x) - turn
                outline = size * (1 + 0.35 * math.cos((kind + 2) * phi))
                if math.hypot(x, y) < outline:
                    image[0, row, column] = 1.0
        if self.augment:
            image = image + 0.3 * torch.randn_like(image)
        return image, kind


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(4, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.skip(x))


class PlanktonNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, 1, 1)
        self.stages = nn.Sequential(Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 2 * width, 2))
        self.head = nn.Linear(2 * width, len(KINDS))

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class MovingAverage:
    def __init__(self, net, decay=0.98):
        self.net = copy.deepcopy(net).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, net):
        torch._foreach_lerp_(list(self.net.parameters()), list(net.parameters()), 1 - self.decay)

    def frozen_copy(self):
        """What an exporter would get: weights that do not move any more."""
        return copy.deepcopy(self.net)


@torch.inference_mode()
def accuracy(net, loader):
    model = torch.compile(net)
    hits = sum((model(image).argmax(1) == kind).sum() for image, kind in loader)
    return hits.item() / len(loader.dataset)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(5)
    train = DataLoader(Silhouettes(192, 1, True), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(Silhouettes(64, 2, False), batch_size=32)
    net = PlanktonNet()
    model = torch.compile(net)
    average = MovingAverage(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    best, folder = 0.0, Path("/tmp/plankton")
    folder.mkdir(exist_ok=True)
    for epoch in range(5):
        began = time.perf_counter()
        total = torch.zeros(())
        for image, kind in train:
            loss = F.cross_entropy(model(image), kind)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(net)
            total += loss.detach()
        candidate = average.frozen_copy()
        score = accuracy(candidate, valid)
        if score > best:
            best = score
            torch.save(candidate.state_dict(), folder / "best.pt")
        logger.info(
            "epoch %d loss %.4f accuracy %.3f best %.3f, %.1f s",
            epoch, total.item() / len(train), score, best, time.perf_counter() - began)


if __name__ == "__main__":
    main()
