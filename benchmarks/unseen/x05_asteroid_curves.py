"""Shapes of asteroids from folded light curves."""

import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla as xla

PHASES = 96
CLASSES = ("sphere", "egg", "contact binary", "slab", "tumbler")


class LightCurves(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        phase = torch.linspace(0, 2 * torch.pi, PHASES + 1)[:-1]
        self.labels = torch.randint(0, len(CLASSES), (count,), generator=g)
        amplitude = 0.2 + torch.rand(count, 6, generator=g)
        offset = 2 * torch.pi * torch.rand(count, 1, generator=g)
        recipe = torch.tensor(
            [
                [0.1, 0.1, 0.0, 0.0, 0.0, 0.0],
                [0.4, 0.8, 0.1, 0.1, 0.0, 0.0],
                [0.1, 1.0, 0.0, 0.6, 0.0, 0.3],
                [0.1, 1.0, 0.4, 0.0, 0.2, 0.0],
                [0.6, 0.4, 0.5, 0.3, 0.4, 0.2],
            ]
        )
        weight = recipe[self.labels] * amplitude
        harmonics = torch.arange(1, 7)
        curves = (weight[..., None] * torch.cos(harmonics[None, :, None] * (phase + offset)[:, None])).sum(1)
        self.curves = curves + 0.15 * torch.randn(count, PHASES, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.curves[index], self.labels[index]


class CircularConv(nn.Module):
    def __init__(self, inside, outside, kernel=5):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, kernel, padding=kernel // 2, padding_mode="circular")
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class ShapeNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = CircularConv(1, width)
        self.blocks = nn.ModuleList(CircularConv(width, width) for _ in range(1))
        self.head = nn.Linear(2 * width, len(CLASSES))

    def forward(self, curves):
        x = self.stem(curves[:, None])
        for block in self.blocks:
            x = x + block(x)
        return self.head(torch.cat([x.mean(-1), x.amax(-1)], dim=1))


def jitter(curves, rng):
    """The zero of the phase is arbitrary, and so are the direction of the spin and the gain."""
    curves = torch.roll(curves, shifts=rng.randrange(PHASES), dims=-1)
    gain = 1 + 0.1 * torch.randn(len(curves), 1, device=curves.device)
    return curves * gain + 0.02 * torch.randn_like(curves)


def train_epoch(model, loader, optimizer, device, rng):
    model.train()
    seen = torch.zeros((), device=device)
    for curves, labels in loader:
        curves, labels = curves.to(device), labels.to(device)
        loss = F.cross_entropy(model(jitter(curves, rng)), labels, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += loss.detach()
        xla.sync()
    return seen.item() / len(loader)


@torch.no_grad()
def confusion(model, loader, device):
    model.eval()
    table = torch.zeros(len(CLASSES), len(CLASSES), device=device)
    margins = []
    for curves, labels in loader:
        logits = model(curves.to(device))
        truth = F.one_hot(labels.to(device), len(CLASSES)).float()
        guess = F.one_hot(logits.argmax(-1), len(CLASSES)).float()
        table += truth.t() @ guess
        best = logits.topk(2, dim=-1).values
        margins.append(best[:, 0] - best[:, 1])
    return table.cpu(), torch.cat(margins).cpu()


def report(table, margins):
    for name, row in zip(CLASSES, table):
        print(f"{name:>15s} " + " ".join(f"{int(v):4d}" for v in row))
    print(f"accuracy {table.diag().sum() / table.sum():.3f}, median margin {margins.median():.2f}")


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    device = xla.device()
    training = DataLoader(LightCurves(256, seed=1), batch_size=64, shuffle=True, drop_last=True)
    validation = DataLoader(LightCurves(640, seed=2), batch_size=64)
    model = ShapeNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    began = time.perf_counter()
    for epoch in range(2):
        loss = train_epoch(model, training, optimizer, device, rng)
        print(f"epoch {epoch} loss {loss:.4f} after {time.perf_counter() - began:.1f} s")
    report(*confusion(model, validation, device))
    print(f"total {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
