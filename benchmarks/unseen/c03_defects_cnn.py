"""Surface-defect classification with a small residual network, compiled by AOTAutograd."""
import argparse
import logging
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger(__name__)


@dataclass
class Settings:
    widths: list = field(default_factory=lambda: [8, 16, 24])
    classes: int = 5
    batch: int = 24
    epochs: int = 4
    dropout: float = 0.1


class Residual(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.conv = nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, fan_out)
        self.skip = nn.Conv2d(fan_in, fan_out, 1, stride=2) if fan_in != fan_out else None

    def forward(self, x):
        y = nn.functional.silu(self.norm(self.conv(x)))
        return y if self.skip is None else y + self.skip(x)


class Classifier(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        fan_in = 1
        self.blocks = nn.ModuleList()
        for width in settings.widths:
            self.blocks.append(Residual(fan_in, width))
            fan_in = width
        self.head = nn.Linear(fan_in, settings.classes)

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index == 0 and x.shape[-1] > 64:
                x = nn.functional.avg_pool2d(x, 2)
        x = x.mean(dim=(2, 3))
        if self.training:
            x = nn.functional.dropout(x, self.settings.dropout)
        return self.head(x)


def images(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    x = torch.randn(count, 1, 32, 32, generator=generator) * 0.4
    x += torch.sin(torch.arange(32) * (y[:, None] + 1) / 4)[:, None, None, :]
    return x, y


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    seen = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum()
        seen += len(y)
    model.train()
    return hits.item() / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    settings = Settings(epochs=args.epochs)
    train = DataLoader(TensorDataset(*images(250, settings.classes, 1)), settings.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(TensorDataset(*images(96, settings.classes, 2)), settings.batch)
    model = torch.compile(Classifier(settings), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=settings.epochs * len(train))
    for epoch in range(settings.epochs):
        losses = []
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        log.info("epoch %d loss %.3f accuracy %.3f", epoch, sum(losses) / len(losses), accuracy(model, held_out))


if __name__ == "__main__":
    main()
