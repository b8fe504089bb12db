"""Fill gaps in recordings of violin bow strokes: a 1-d convolutional inpainter, compiled, dropout annealed while it trains."""
import argparse
import logging
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(levelname).1s %(message)s", level=logging.INFO)
log = logging.getLogger(__name__)

RATE = 8000
LENGTH = 512
GAP = 64


def design_filter(low, high, taps=255, grid=1024):
    """A linear-phase band-pass by frequency sampling: integrate the wanted response tap by tap."""
    frequency = np.linspace(0, RATE / 2, grid)
    wanted = 1 / (1 + np.exp(-(frequency - low) / 20)) * (1 / (1 + np.exp((frequency - high) / 60)))
    centre = (taps - 1) / 2
    h = np.array([np.trapezoid(wanted * np.cos(2 * np.pi * frequency * (k - centre) / RATE), frequency)
                  for k in range(taps)])
    return h * np.hanning(taps) * 2 / RATE


class Strokes(Dataset):
    """Saw-tooth strings with vibrato and bow noise, band-limited as the body of the violin does."""

    def __init__(self, count, seed, body=(180.0, 3200.0)):
        self.count, self.seed, self.body = count, seed, body

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        t = np.arange(LENGTH + 254) / RATE
        pitch = 196.0 * 2 ** (rng.integers(0, 24) / 12)
        vibrato = 0.004 * np.sin(2 * np.pi * rng.uniform(4, 7) * t)
        phase = np.cumsum(pitch * (1 + vibrato)) / RATE
        raw = 2 * (phase % 1.0) - 1 + rng.normal(0, 0.05, size=t.shape)
        sound = np.convolve(raw, design_filter(*self.body), mode="valid")
        sound = sound / (np.abs(sound).max() + 1e-6)
        start = rng.integers(GAP, LENGTH - 2 * GAP)
        mask = np.ones(LENGTH, dtype="float32")
        mask[start:start + GAP] = 0
        return torch.from_numpy(sound.astype("float32")), torch.from_numpy(mask)


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 1)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return x + self.dropout(torch.tanh(self.conv(x)) * torch.sigmoid(self.gate(x)))


class Inpainter(nn.Module):
    def __init__(self, width=12, dilations=(1, 4, 16)):
        super().__init__()
        self.enter = nn.Conv1d(2, width, 9, padding=4)
        self.blocks = nn.Sequential(*(Block(width, d) for d in dilations))
        self.leave = nn.Conv1d(width, 1, 1)

    def forward(self, sound, mask):
        x = torch.stack([sound * mask, mask], dim=1)
        return self.leave(self.blocks(self.enter(x))).squeeze(1)


class AnnealedDropout:
    """From `start` to `end` along a half cosine."""

    def __init__(self, model, start, end, steps):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Dropout)]
        self.start, self.end, self.steps, self.now = start, end, steps, 0

    def step(self):
        share = 0.5 * (1 - math.cos(math.pi * min(1.0, self.now / self.steps)))
        for layer in self.layers:
            layer.p = self.start + (self.end - self.start) * share
        self.now += 1


def gap_error(guess, sound, mask):
    hole = 1 - mask
    return ((guess - sound).square() * hole).sum() / hole.sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strokes", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()

    torch.manual_seed(8)
    loader = DataLoader(Strokes(options.strokes, seed=1), batch_size=options.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(Strokes(options.batch * 2, seed=2), batch_size=options.batch)
    model = Inpainter()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    dropout = AnnealedDropout(model, start=0.3, end=0.02, steps=options.epochs * len(loader))

    for epoch in range(options.epochs):
        model.train()
        losses = []
        for sound, mask in loader:
            dropout.step()
            loss = gap_error(compiled(sound, mask), sound, mask)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        model.eval()
        with torch.no_grad():
            held = torch.stack([gap_error(compiled(s, m), s, m) for s, m in held_out]).mean()
        log.info("epoch %d: gap error %.4f, held out %.4f", epoch, torch.stack(losses).mean(), held)


if __name__ == "__main__":
    main()
