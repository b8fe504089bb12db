"""Surface defect classifier: small CNN, focal loss whose focusing parameter is annealed over training."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla

log = logging.getLogger("defects")


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class DefectNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(Block(1, 8), Block(8, 16))
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class FocalLoss(nn.Module):
    """Lin et al., with class weights."""

    def __init__(self, weight, gamma=0.5):
        super().__init__()
        self.register_buffer("weight", weight)
        self.gamma = gamma

    def forward(self, logits, target):
        logp = F.log_softmax(logits, dim=-1)
        logpt = logp.gather(1, target.unsqueeze(1)).squeeze(1)
        pt = logpt.exp()
        modulation = (1.0 - pt).clamp(min=1e-6) ** self.gamma
        return -(self.weight[target] * modulation * logpt).mean()


def make_data(n, classes, size, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    x = torch.randn(n, 1, size, size, generator=g) * 0.5
    x += y.view(-1, 1, 1, 1).float() / classes
    return TensorDataset(x, y)


def train(args):
    device = torch_xla.device()
    torch.manual_seed(args.seed)
    loader = DataLoader(make_data(args.samples, args.classes, args.size, args.seed), batch_size=args.batch,
                        shuffle=True)
    model = DefectNet(args.classes).to(device)
    criterion = FocalLoss(torch.linspace(0.5, 1.5, args.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    torch_xla.sync()
    for epoch in range(args.epochs):
        criterion.gamma = args.gamma_start + (args.gamma_end - args.gamma_start) * epoch / (args.epochs - 1)
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            torch_xla.sync()
        log.info("epoch %d gamma %.2f loss %.4f", epoch, criterion.gamma, total.item() / len(loader))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--samples", type=int, default=120)
    p.add_argument("--classes", type=int, default=6)
    p.add_argument("--size", type=int, default=16)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--gamma-start", type=float, default=0.6)
    p.add_argument("--gamma-end", type=float, default=2.6)
    p.add_argument("--seed", type=int, default=0)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train(p.parse_args())
