"""Segmentation of field parcels in satellite tiles of two sizes."""
import logging
import time

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset, Sampler

log = logging.getLogger("seg")
CLASSES = 4
SIZES = (32, 48)


class Tiles(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for i in range(n):
            s = SIZES[i % 2]
            mask = np.zeros((s, s), np.int64)
            for c in range(1, CLASSES):
                y, x = rng.integers(0, s - 12, 2)
                h, w = rng.integers(6, 14, 2)
                mask[y:y + h, x:x + w] = c
            img = np.eye(CLASSES)[mask].transpose(2, 0, 1)[:3] + rng.normal(0, 0.4, (3, s, s))
            self.items.append((img.astype(np.float32), mask))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BySize(Sampler):
    """Batches that hold tiles of one size only."""

    def __init__(self, n, batch, seed=0):
        self.n, self.batch, self.rng = n, batch, np.random.default_rng(seed)

    def __len__(self):
        return sum(len(range(k, self.n, 2)) // self.batch for k in (0, 1))

    def __iter__(self):
        out = []
        for k in (0, 1):
            idx = self.rng.permutation(np.arange(k, self.n, 2))
            out += [idx[i:i + self.batch].tolist() for i in range(0, len(idx) - self.batch + 1, self.batch)]
        self.rng.shuffle(out)
        return iter(out)


class MiniUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        self.down, self.mid, self.up = conv(3, w), conv(w, w), conv(2 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.mid(F.max_pool2d(a, 2))
        x = self.up(torch.cat([F.interpolate(b, scale_factor=2.0), a], 1))
        return self.out(x)


def evaluate(model, loader, device):
    model.eval()
    inter = torch.zeros(CLASSES, device=device)
    union = torch.zeros(CLASSES, device=device)
    torch_xla.sync()
    with torch.no_grad():
        for img, mask in loader:
            pred = F.one_hot(model(img.to(device)).argmax(1), CLASSES)
            true = F.one_hot(mask.to(device), CLASSES)
            inter += (pred * true).sum((0, 1, 2))
            union += ((pred + true) > 0).sum((0, 1, 2))
            torch_xla.sync()
    model.train()
    return (inter / union.clamp(min=1)).cpu().numpy()


def main(epochs=5, batch=8, log_every=50):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    device = torch.device("xla")
    train_set, val_set = Tiles(480, 1), Tiles(96, 2)
    train = DataLoader(train_set, batch_sampler=BySize(len(train_set), batch))
    val = DataLoader(val_set, batch_sampler=BySize(len(val_set), batch))
    model = MiniUNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(train))
    step, best, running, t0 = 0, 0.0, torch.zeros((), device=device), time.time()
    torch_xla.sync()
    for epoch in range(epochs):
        for img, mask in train:
            img, mask = img.to(device), mask.to(device)
            loss = F.cross_entropy(model(img), mask)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            running += loss.detach()
            torch_xla.sync()
            step += 1
            if step % log_every == 0:
                log.info("step %d loss %.4f lr %.5f %.1fs", step, running.item() / log_every, sched.get_last_lr()[0], time.time() - t0)
                running.zero_()
                torch_xla.sync()
        iou = evaluate(model, val, device)
        log.info("epoch %d mean iou %.3f per class %s", epoch, iou.mean(), np.round(iou, 2))
        best = max(best, float(iou.mean()))
    xm.save(model.state_dict(), "/tmp/parcels.pt")
    log.info("best %.3f", best)


if __name__ == "__main__":
    main()
