"""Crystals in zinc glazes: segment micrographs of fired tiles and record how the features spread while training."""

import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class GlazeTiles(Dataset):
    """Micrographs with radial crystals; the mask says where they are."""

    def __init__(self, count, size=16, seed=0, augment=False):
        self.augment = augment
        g = torch.Generator().manual_seed(seed)
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.images = 0.3 * torch.randn(count, 1, size, size, generator=g)
        self.masks = torch.zeros(count, 1, size, size)
        for index in range(count):
            for _ in range(int(torch.randint(1, 4, (1,), generator=g))):
                y, x, r = torch.rand(3, generator=g) * torch.tensor([size, size, 4.0]) + torch.tensor([0.0, 0.0, 2.0])
                distance = ((rows - y) ** 2 + (columns - x) ** 2).sqrt()
                spokes = torch.cos(8 * torch.atan2(rows - y, columns - x))
                inside = (distance < r).float()
                self.images[index, 0] += inside * (0.8 + 0.4 * spokes)
                self.masks[index, 0] = torch.maximum(self.masks[index, 0], inside)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


def dihedral(images, masks):
    """One of the eight symmetries of the square, the same for the whole batch."""
    turn = int(torch.randint(0, 4, ()))
    images, masks = images.rot90(turn, (2, 3)), masks.rot90(turn, (2, 3))
    if torch.rand(()) < 0.5:
        images, masks = images.transpose(2, 3), masks.transpose(2, 3)
    return images, masks


class Down(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, padding=1)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        self.norm = nn.GroupNorm(4, outside)

    def forward(self, x):
        return F.relu(self.norm(self.second(F.relu(self.first(x)))))


class GlazeNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.one = Down(1, width)
        self.two = Down(width, 2 * width)
        self.three = Down(2 * width, 2 * width)
        self.up_two = Down(4 * width, width)
        self.up_one = Down(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.spread = []

    def forward(self, x):
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        three = self.three(F.max_pool2d(two, 2))
        if self.training:
            self.spread.append(three.detach().std())
        x = self.up_two(torch.cat([two, F.interpolate(three, scale_factor=2)], dim=1))
        x = self.up_one(torch.cat([one, F.interpolate(x, scale_factor=2)], dim=1))
        return self.out(x)


def dice_loss(logits, masks):
    p = logits.sigmoid()
    overlap = (p * masks).sum((1, 2, 3))
    return (1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()


def fit(net, forward, loader, optimizer, epochs):
    for epoch in range(epochs):
        net.train()
        losses = []
        for images, masks in loader:
            images, masks = dihedral(images, masks)
            logits = forward(images)
            loss = F.binary_cross_entropy_with_logits(logits, masks) + dice_loss(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        spread = torch.stack(net.spread)
        print(f"epoch {epoch}: loss {statistics.mean(losses):.3f}, spread {spread.mean():.3f} ± {spread.std():.3f}")
        net.spread.clear()


@torch.no_grad()
def intersection_over_union(net, forward, loader):
    net.eval()
    overlap = union = 0
    for images, masks in loader:
        guess = forward(images) > 0
        truth = masks > 0.5
        overlap += int((guess & truth).sum())
        union += int((guess | truth).sum())
    return overlap / union


def main():
    torch.manual_seed(12)
    training = DataLoader(GlazeTiles(192, seed=1), batch_size=16, shuffle=True, drop_last=True)
    validation = DataLoader(GlazeTiles(64, seed=2), batch_size=16)
    net = GlazeNet()
    forward = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    start = time.time()
    fit(net, forward, training, optimizer, epochs=4)
    print(f"IoU {intersection_over_union(net, forward, validation):.3f} after {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
