"""Soot around a candle wick: a Fourier neural operator, cross-validated over wick lengths.

Temperature fields on a ring of 64 angles are advanced by a learned operator.  For each of
six wicks a model is trained on the other five and tested on the one that is left out.
"""
import time
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

ANGLES = 64
MODES = 12
WICKS = 6


class Fold(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def advance(field, wick, steps=30, dt=0.02):
    k = torch.fft.rfftfreq(ANGLES, 1 / ANGLES)
    decay = torch.exp(-dt * k ** 2 * (0.02 + 0.01 * wick))
    for _ in range(steps):
        field = torch.fft.irfft(torch.fft.rfft(field) * decay, n=ANGLES)
        field = field + dt * (field - field ** 3) * (1 + 0.2 * wick)
    return field


def simulate(count=160, seed=0):
    gen = torch.Generator().manual_seed(seed)
    x, y = [], []
    for wick in range(WICKS):
        spectrum = torch.zeros(count, ANGLES // 2 + 1, dtype=torch.complex64)
        spectrum[:, :8] = torch.randn(count, 8, dtype=torch.complex64, generator=gen) * 8
        start = torch.fft.irfft(spectrum, n=ANGLES)
        x.append(torch.stack([start, torch.full_like(start, wick / WICKS)], 1))
        y.append(advance(start, wick))
    return torch.stack(x), torch.stack(y)


def split(x, y, left_out):
    rest = [w for w in range(WICKS) if w != left_out]
    return Fold(x[rest].flatten(0, 1), y[rest].flatten(0, 1), x[left_out], y[left_out])


class SpectralLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, MODES, 2) / width)
        self.local = nn.Conv1d(width, width, 1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        kept = torch.einsum("bim,iom->bom", spectrum[..., :MODES], torch.view_as_complex(self.weight))
        kept = F.pad(kept, (0, spectrum.shape[-1] - MODES))
        return F.gelu(torch.fft.irfft(kept, n=ANGLES) + self.local(x))


class Operator(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1)
        self.layers = nn.ModuleList(SpectralLayer(width) for _ in range(depth))
        self.project = nn.Conv1d(width, 1, 1)
        self.energies = []

    def forward(self, x):
        h = self.lift(x)
        for layer in self.layers:
            h = layer(h)
        self.energies.append(h.detach().square().mean())
        return x[:, 0] + self.project(h).squeeze(1)

    def drain(self):
        energies, self.energies = self.energies, []
        return torch.stack(energies).mean().item()


def train_fold(fold, epochs=3, batch=20):
    model = Operator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    forward = torch.compile(model, backend="aot_eager")
    for _ in range(epochs):
        for idx in torch.randperm(len(fold.x)).split(batch):
            loss = F.mse_loss(forward(fold.x[idx]), fold.y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        energy = model.drain()
    with torch.no_grad():
        error = F.mse_loss(model(fold.x_test), fold.y_test).sqrt().item()
    return error, energy


def main():
    torch.manual_seed(9)
    x, y = simulate()
    errors = []
    for wick in range(3):
        began = time.time()
        error, energy = train_fold(split(x, y, wick))
        errors.append(error)
        print(f"wick {wick}: error {error:.4f} energy {energy:.3f} ({time.time() - began:.1f} s)", flush=True)
    print(f"mean error {sum(errors) / len(errors):.4f}")


if __name__ == "__main__":
    main()
