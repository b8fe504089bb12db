"""Churn prediction with accelerate on the XLA device: prepared loaders, a schedule, gathered metrics every epoch."""
import argparse

import torch
import torch_xla
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Churn(nn.Module):
    def __init__(self, numeric, categories, width=48):
        super().__init__()
        self.embed = nn.ModuleList(nn.Embedding(size, 6) for size in categories)
        fan_in = numeric + 6 * len(categories)
        self.body = nn.Sequential(
            nn.Linear(fan_in, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, numeric, codes):
        parts = [table(codes[:, i]) for i, table in enumerate(self.embed)]
        return self.body(torch.cat([numeric, *parts], dim=1)).squeeze(1)


def customers(count, numeric, categories, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, numeric, generator=generator)
    codes = torch.stack([torch.randint(size, (count,), generator=generator) for size in categories], dim=1)
    score = x[:, 0] - x[:, 1] * x[:, 2] + (codes[:, 0] == 1).float()
    return TensorDataset(x, codes, (score > 0.3).float())


def evaluate(accelerator, model, loader):
    model.eval()
    hits = total = 0
    kept = []
    with torch.no_grad():
        for x, codes, y in loader:
            guess = (model(x, codes) > 0).float()
            kept.append((guess == y).float().mean())
            total += len(y)
    hits = torch.stack(kept).mean()
    model.train()
    return accelerator.gather(hits).mean().item(), total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    set_seed(5)
    accelerator = Accelerator()
    categories = [4, 9, 12]
    train = DataLoader(customers(32 * 12, 10, categories, 1), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(customers(96, 10, categories, 2), args.batch)
    model = Churn(10, categories)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    model, optimizer, train, test, schedule = accelerator.prepare(model, optimizer, train, test, schedule)
    accelerator.print(f"device {accelerator.device}, {len(train)} batches an epoch, torch_xla {torch_xla.__version__}")
    for epoch in range(args.epochs):
        running = torch.zeros((), device=accelerator.device)
        for x, codes, y in train:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x, codes), y)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.detach()
        accuracy, total = evaluate(accelerator, model, test)
        accelerator.print(f"epoch {epoch} loss {running.item() / len(train):.4f} accuracy {accuracy:.3f} of {total}")


if __name__ == "__main__":
    main()
