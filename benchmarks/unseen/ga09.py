"""Crop-disease pictures of two sizes: a small ResNet with a loader, buckets, step closures, best weights kept."""
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset, Sampler

CLASSES = 5
SIZES = (24, 32)  # cameras of two kinds; a batch holds one kind only


class Leaves(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.size = rng.choice(SIZES, n)
        self.label = rng.integers(0, CLASSES, n)
        self.image = [self.draw(rng, s, y) for s, y in zip(self.size, self.label)]

    @staticmethod
    def draw(rng, size, label):
        """Stripes whose pitch and direction depend on the class, on a noisy green leaf."""
        axis = np.linspace(0, 1, size)
        x, y = np.meshgrid(axis, axis)
        angle = label * np.pi / CLASSES
        wave = np.sin(2 * np.pi * (3 + label % 2) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))
        image = np.stack([0.2 + 0.2 * wave, 0.6 + 0.1 * wave, 0.2 - 0.1 * wave])
        return (image + rng.normal(0, 0.25, image.shape)).astype(np.float32)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return torch.from_numpy(self.image[i]), int(self.label[i])


class OneSizeBatches(Sampler):
    """Full batches of one picture size, in random order."""

    def __init__(self, sizes, batch_size, seed=0):
        self.rng = np.random.default_rng(seed)
        self.groups = [np.flatnonzero(sizes == s) for s in SIZES]
        self.batch_size = batch_size

    def __len__(self):
        return sum(len(g) // self.batch_size for g in self.groups)

    def __iter__(self):
        batches = []
        for group in self.groups:
            group = self.rng.permutation(group)
            full = len(group) // self.batch_size * self.batch_size
            batches.extend(group[:full].reshape(-1, self.batch_size).tolist())
        self.rng.shuffle(batches)
        return iter(batches)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x):
        return F.relu(self.skip(x) + self.b(F.relu(self.norm(self.a(x)))))


def make_net(width=12):
    return nn.Sequential(
        Block(3, width, 2), Block(width, 2 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(2 * width, CLASSES),
    )


def log_progress(step, loss):
    print(f"  step {step}: loss {loss.item():.4f}")


def train_epoch(net, loader, optimizer, epoch, every):
    net.train()
    for step, (image, label) in enumerate(loader):
        loss = F.cross_entropy(net(image), label, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        xm.optimizer_step(optimizer)
        if step == every:
            xm.add_step_closure(log_progress, args=(epoch * len(loader) + step, loss))


@torch.no_grad()
def accuracy(net, loader, device):
    net.eval()
    right = torch.zeros((), device=device)
    count = 0
    for image, label in loader:
        right += (net(image).argmax(1) == label).sum()
        count += label.shape[0]
    return right.item() / count


def main():
    torch.manual_seed(0)
    device = torch.device("xla")
    train_set, valid_set = Leaves(640, seed=1), Leaves(320, seed=2)
    train = pl.MpDeviceLoader(DataLoader(train_set, batch_sampler=OneSizeBatches(train_set.size, 32)), device)
    valid = pl.MpDeviceLoader(DataLoader(valid_set, batch_sampler=OneSizeBatches(valid_set.size, 32)), device)
    net = make_net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    best, kept = 0.0, None
    for epoch in range(8):
        start = time.time()
        train_epoch(net, train, optimizer, epoch, every=8)
        schedule.step()
        score = accuracy(net, valid, device)
        if score > best:
            best, kept = score, {k: v.cpu() for k, v in copy.copy(net.state_dict()).items()}
        print(f"epoch {epoch}: accuracy {score:.3f}, {time.time() - start:.1f} s")
    net.load_state_dict(kept)
    print(f"best {best:.3f}, checked again {accuracy(net, valid, device):.3f}")


if __name__ == "__main__":
    main()
