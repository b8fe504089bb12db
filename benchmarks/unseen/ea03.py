"""Land-cover segmentation of multispectral tiles (12 bands, 6 classes) with a small U-Net on XLA."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

BANDS, CLASSES, TILE = 12, 6, 48


def make_scene(rng, n):
    """Smooth class maps with one spectral signature a class, and haze of random strength."""
    low = torch.from_numpy(rng.normal(size=(n, CLASSES, 6, 6)).astype(np.float32))
    label = F.interpolate(low, size=(TILE, TILE), mode="bicubic").argmax(1)
    signature = rng.uniform(200, 4000, (CLASSES, BANDS)).astype(np.float32)
    image = signature[label.numpy()].transpose(0, 3, 1, 2)
    haze = rng.gamma(2.0, 150.0, (n, 1, 1, 1))
    image = image + haze + rng.normal(0, 350, image.shape)
    return np.clip(image, 0, 10000).astype(np.uint16), label.numpy().astype(np.int64)


class Tiles(Dataset):
    """Raw digital numbers -> stretched reflectance + NDVI, NDWI."""

    def __init__(self, images, labels, train):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self):
        return len(self.images)

    def stretch(self, image):
        out = np.empty(image.shape, np.float32)
        for b in range(BANDS):
            lo, mid, hi = np.percentile(image[b], [2, 50, 98])
            band = np.clip((image[b] - lo) / max(hi - lo, 1), 0, 1)
            edges = np.quantile(band, np.linspace(0, 1, 65))
            equalised = np.interp(band, edges, np.linspace(0, 1, 65))
            out[b] = 0.5 * band + 0.5 * equalised
        return out

    def __getitem__(self, i):
        x = self.stretch(self.images[i].astype(np.float64))
        nir, red, green = x[7], x[3], x[2]
        ndvi = (nir - red) / (nir + red + 1e-3)
        ndwi = (green - nir) / (green + nir + 1e-3)
        x = np.concatenate([x, ndvi[None], ndwi[None]])
        y = self.labels[i]
        if self.train:
            k = np.random.randint(4)
            x, y = np.rot90(x, k, (1, 2)).copy(), np.rot90(y, k).copy()
        return torch.from_numpy(x), torch.from_numpy(y)


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.d1, self.d2, self.mid = block(BANDS + 2, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = block(6 * w, 2 * w), block(3 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([b, F.interpolate(m, scale_factor=2.0)], 1))
        a = self.u1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        return self.out(a)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    confusion = torch.zeros(CLASSES * CLASSES, device=device)
    for x, y in loader:
        pred = model(x).argmax(1)
        confusion.index_add_(0, (y * CLASSES + pred).flatten(), torch.ones(y.numel(), device=device))
    c = confusion.view(CLASSES, CLASSES).cpu()
    iou = c.diag() / (c.sum(0) + c.sum(1) - c.diag()).clamp_min(1)
    return (c.diag().sum() / c.sum()).item(), iou.mean().item()


def main():
    torch.manual_seed(1)
    np.random.seed(1)
    rng = np.random.default_rng(1)
    device = torch_xla.device()
    images, labels = make_scene(rng, 288)
    train = DataLoader(Tiles(images[:256], labels[:256], True), batch_size=16, shuffle=True, drop_last=True)
    valid = DataLoader(Tiles(images[256:], labels[256:], False), batch_size=16)
    train_dev, valid_dev = pl.MpDeviceLoader(train, device), pl.MpDeviceLoader(valid, device)

    model = UNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        t, total = time.time(), torch.zeros((), device=device)
        for x, y in train_dev:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            xm.optimizer_step(opt)
            total += loss.detach()
        mean = total.item() / len(train)
        acc, miou = evaluate(model, valid_dev, device)
        print(f"epoch {epoch}: loss {mean:.4f}, accuracy {acc:.3f}, mIoU {miou:.3f}, {time.time() - t:.1f} s")


if __name__ == "__main__":
    main()
