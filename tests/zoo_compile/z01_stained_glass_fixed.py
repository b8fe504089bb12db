"""Attribute stained-glass panels to workshops from small rectified photographs."""
import argparse
import logging
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("glass")
WORKSHOPS = ["Chartres", "Canterbury", "Bourges", "Augsburg", "York", "Sens"]


class PanelDataset(Dataset):
    """Synthetic panels: a lead-line lattice over patches of pot-metal colour."""

    def __init__(self, count, seed, size=32):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(WORKSHOPS), (count,), generator=g)
        yy, xx = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        images = []
        for label in self.labels.tolist():
            angle = math.pi * label / len(WORKSHOPS) + 0.1 * torch.randn(1, generator=g).item()
            pitch = 4.0 + label + torch.rand(1, generator=g).item()
            lattice = torch.sin(pitch * (xx * math.cos(angle) + yy * math.sin(angle)) * math.pi)
            tint = torch.rand(3, 1, 1, generator=g)
            images.append(tint * (lattice > 0).float() + 0.15 * torch.randn(3, size, size, generator=g))
        self.images = torch.stack(images)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class LeadBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.depth = nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False)
        self.point = nn.Conv2d(cin, cout, 1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.silu(self.norm(self.point(self.depth(x))))


class PanelNet(nn.Module):
    def __init__(self, width=16, classes=len(WORKSHOPS)):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.ModuleList([
            LeadBlock(width, width * 2, 2),
            LeadBlock(width * 2, width * 2, 1),
            LeadBlock(width * 2, width * 4, 2),
        ])
        self.head = nn.Linear(width * 4, classes)
        self.register_buffer("saturation", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, x):
        x = F.silu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        pooled = x.mean((2, 3))
        if self.training:
            self.saturation.add_((pooled.detach() < 0.01).float().mean())
            self.batches.add_(1)
        return self.head(pooled)

    def drain_saturation(self):
        mean = (self.saturation / self.batches).item()
        self.saturation.zero_()
        self.batches.zero_()
        return mean


class Trainer:
    def __init__(self, net, epochs, steps_per_epoch, max_lr):
        self.net = net
        self.forward = torch.compile(net)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=max_lr, momentum=0.9,
                                         nesterov=True, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=max_lr, total_steps=epochs * steps_per_epoch, pct_start=0.3)

    def run_epoch(self, loader):
        self.net.train()
        running, seen = 0.0, 0
        for images, labels in loader:
            loss = F.cross_entropy(self.forward(images), labels, label_smoothing=0.05)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            running += loss.detach() * len(labels)
            seen += len(labels)
        return float(running) / seen

    @torch.no_grad()
    def accuracy(self, loader):
        self.net.eval()
        hits = sum((self.net(images).argmax(1) == labels).sum() for images, labels in loader)
        return float(hits) / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--max-lr", type=float, default=0.2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(11)

    train = DataLoader(PanelDataset(640, 1), batch_size=args.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(PanelDataset(192, 2), batch_size=64)
    net = PanelNet()
    trainer = Trainer(net, args.epochs, len(train), args.max_lr)
    for epoch in range(args.epochs):
        loss = trainer.run_epoch(train)
        log.info("epoch %d  loss %.3f  dead units %.2f  held-out %.3f",
                 epoch, loss, net.drain_saturation(), trainer.accuracy(held_out))


if __name__ == "__main__":
    main()
