"""Rhythm classification of single-lead ECG strips recorded at different rates."""
import torch_xla
import argparse
import csv
import io

import numpy as np
import scipy.signal
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

TARGET_RATE, SECONDS = 50, 4
RATES = (250, 360, 500)


class Strip:
    """A recording as it lies in the archive: raw samples, sampling rate and rhythm."""

    __slots__ = ("signal", "rate", "rhythm")

    def __init__(self, rng, rhythm):
        self.rate, self.rhythm = int(rng.choice(RATES)), rhythm
        t = np.arange(self.rate * SECONDS) / self.rate
        gap = {0: 0.85, 1: 0.5, 2: 0.85}[rhythm]
        jitter = 0.25 if rhythm == 2 else 0.02
        beats, now = [], rng.random() * gap
        while now < SECONDS:
            beats.append(now)
            now += max(0.3, gap * (1 + jitter * rng.normal()))
        wave = sum(np.exp(-((t - b) / 0.03) ** 2) - 0.3 * np.exp(-((t - b - 0.05) / 0.03) ** 2) for b in beats)
        drift = 0.5 * np.sin(2 * np.pi * 0.3 * t + rng.random())
        hum = 0.2 * np.sin(2 * np.pi * 50 * t)
        self.signal = (wave + drift + hum + 0.1 * rng.normal(size=t.size)).astype(np.float32)


class StripDataset(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.strips = [Strip(rng, int(rng.integers(0, 3))) for _ in range(count)]

    def __len__(self):
        return len(self.strips)

    def clean(self, strip):
        sos = scipy.signal.butter(4, [0.7, 24], "bandpass", fs=strip.rate, output="sos")
        b, a = scipy.signal.iirnotch(50, 30, fs=strip.rate)
        flat = scipy.signal.sosfiltfilt(sos, strip.signal)
        flat = scipy.signal.filtfilt(b, a, flat)
        flat = flat - scipy.signal.medfilt(flat, 2 * (strip.rate // 4) + 1)
        out = scipy.signal.resample_poly(flat, TARGET_RATE, strip.rate)[: TARGET_RATE * SECONDS]
        return (out - out.mean()) / (out.std() + 1e-6)

    def __getitem__(self, i):
        strip = self.strips[i]
        return torch.from_numpy(self.clean(strip).astype(np.float32)), strip.rhythm


class RhythmNet(nn.Module):
    def __init__(self, patch=10, width=32):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, width)
        self.mix = nn.Sequential(nn.Linear(TARGET_RATE * SECONDS // patch, 32), nn.Tanh(), nn.Linear(32, 4))
        self.head = nn.Linear(4 * width, 3)

    def forward(self, x):
        h = torch.tanh(self.embed(x.unflatten(1, (-1, self.patch))))
        return self.head(self.mix(h.transpose(1, 2)).flatten(1))


def augment(x, gen):
    gain = 0.8 + 0.4 * torch.rand(len(x), 1, generator=gen)
    return gain * x + 0.05 * torch.randn(x.shape, generator=gen)


@torch.no_grad()
def confusion(model, loader, device):
    table = torch.zeros(3, 3, device=device)
    xm.mark_step()
    for x, y in loader:
        guess = F.one_hot(model(x.to(device)).argmax(-1), 3).float()
        table += F.one_hot(y.to(device), 3).float().t() @ guess
        xm.mark_step()
    return table.cpu()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch", type=int, default=16)
    args = ap.parse_args()
    torch.manual_seed(0)
    device, gen = xm.xla_device(), torch.Generator().manual_seed(1)
    train = DataLoader(StripDataset(96, 1), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(StripDataset(48, 2), args.batch)
    model = RhythmNet().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    book = io.StringIO()
    writer = csv.writer(book)
    for epoch in range(args.epochs):
        total = torch.zeros((), device=device)
        xm.mark_step()
        for x, y in train:
            loss = F.cross_entropy(model(augment(x, gen).to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
            xm.mark_step()
        if epoch % 4 == 3:
            table = confusion(model, test, device)
            writer.writerow([epoch, f"{total.item() / len(train):.3f}", f"{(table.diag().sum() / table.sum()).item():.3f}"])
    print(book.getvalue().strip())


if __name__ == "__main__":
    main()
