"""Segmentation of synthetic microscopy images with a small U-Net, and per-class IoU on held-out images."""
import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ("background", "nucleus", "membrane", "debris")
SIZE = 48


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images, masks = [], []
    for _ in range(n):
        mask = torch.zeros(SIZE, SIZE, dtype=torch.long)
        for _ in range(4):
            cy, cx = (torch.rand(2, generator=g) * SIZE).tolist()
            r = 5 + 8 * torch.rand(1, generator=g).item()
            d = ((yy - cy) ** 2 + (xx - cx) ** 2).sqrt()
            mask[d < r + 2] = 2
            mask[d < r] = 1
        noise = torch.randn(SIZE, SIZE, generator=g)
        mask[noise > 2.8] = 3
        images.append((mask.float() / 3 + 0.2 * noise).unsqueeze(0))
        masks.append(mask)
    return TensorDataset(torch.stack(images), torch.stack(masks))


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down1, self.down2, self.middle = block(1, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1 = block(6 * width, 2 * width), block(3 * width, width)
        self.head = nn.Conv2d(width, len(CLASSES), 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


class RandomZoom:
    """Zooms into the middle, the whole batch alike; on the device, where it is cheap."""

    def __init__(self, smallest, rng):
        self.smallest, self.rng = smallest, rng

    def __call__(self, image, mask):
        side = self.rng.randrange(self.smallest, SIZE + 1, 4)
        start = (SIZE - side) // 2
        image = image[:, :, start : start + side, start : start + side]
        mask = mask[:, None, start : start + side, start : start + side].float()
        image = F.interpolate(image, size=(SIZE, SIZE), mode="bilinear")
        mask = F.interpolate(mask, size=(SIZE, SIZE), mode="nearest")
        return image, mask[:, 0].long()


class IoU:
    def __init__(self, classes, device):
        self.classes = classes
        self.sums = [0.0] * classes
        self.counts = [0] * classes

    def update(self, prediction, mask):
        for c in range(self.classes):
            p, m = prediction == c, mask == c
            union = (p | m).sum()
            if union > 0:
                self.sums[c] += ((p & m).sum() / union).item()
                self.counts[c] += 1

    def compute(self):
        return {CLASSES[c]: self.sums[c] / max(1, self.counts[c]) for c in range(self.classes)}


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    iou = IoU(len(CLASSES), device)
    for image, mask in loader:
        iou.update(model(image).argmax(1), mask)
    model.train()
    return iou.compute()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(make_images(80, 0), args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(make_images(48, 1), args.batch_size)
    model = UNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weight = torch.tensor([0.5, 1.0, 1.5, 3.0], device=device)
    augment = RandomZoom(32, random.Random(3))
    for epoch in range(args.epochs):
        start = time.time()
        total = torch.zeros((), device=device)
        for image, mask in pl.MpDeviceLoader(train, device):
            image, mask = augment(image, mask)
            loss = F.cross_entropy(model(image), mask, weight=weight)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        scores = evaluate(model, pl.MpDeviceLoader(test, device), device)
        print(f"epoch {epoch}: loss {total.item() / len(train):.3f}", {k: round(v, 3) for k, v in scores.items()}, f"{time.time() - start:.1f} s")
    xm.save(model.state_dict(), "/tmp/unet_cells.pt")


if __name__ == "__main__":
    main()
