"""One trunk, many mills: particle size of flour from near infrared spectra.

Fourteen mills calibrate their own outputs on a common trunk of one-dimensional
convolutions.  The mills take turns; each has its own head, picked by name.  A baseline
(rubber-band style smoothing with a Savitzky-Golay filter) is taken off every spectrum.
"""
import argparse
import itertools
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import savgol_filter
from torch import nn

CHANNELS = 160
MILLS = ["aldern", "birk", "clough", "dunmill", "esk", "fenwick", "gower", "hale", "ive", "kelso", "leat", "mosse",
         "nidd", "oare"]


def make_mills(seed=0):
    rng = np.random.default_rng(seed)
    axis = np.linspace(0, 1, CHANNELS)
    bands = np.exp(-((axis[None] - rng.uniform(0, 1, (6, 1))) / 0.05) ** 2)
    mills = {}
    for name in MILLS:
        gain, tilt = rng.uniform(0.7, 1.3), rng.normal(size=3)
        mills[name] = (gain, tilt)
    return axis, bands, mills, rng


class SpectrumSource:
    def __init__(self, batch, seed):
        self.axis, self.bands, self.mills, self.rng = make_mills(seed)
        self.batch = batch

    def sample(self, name):
        gain, tilt = self.mills[name]
        mix = self.rng.gamma(2.0, 0.5, (self.batch, 6))
        drift = np.stack([self.axis ** k for k in range(3)]).T @ tilt
        spectra = gain * mix @ self.bands + drift + 0.01 * self.rng.normal(size=(self.batch, CHANNELS))
        size = mix @ np.array([0.5, -0.2, 0.3, 0.1, -0.4, 0.6]) * gain
        return torch.tensor(spectra, dtype=torch.float32), torch.tensor(size, dtype=torch.float32)


class Baseline(nn.Module):
    """Takes the slow part of a spectrum off."""

    def __init__(self, window=61, order=2):
        super().__init__()
        self.window, self.order = window, order

    def forward(self, x):
        slow = savgol_filter(x.numpy(), self.window, self.order, axis=-1)
        return x - torch.from_numpy(slow).to(x)


class ConvBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)
        self.gate = nn.Conv1d(width, width, 1)

    def forward(self, x):
        h = F.silu(self.norm(self.conv(x)))
        return x + h * torch.sigmoid(self.gate(h))


class MillModel(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.baseline = Baseline()
        self.stem = nn.Conv1d(1, width, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList(ConvBlock(width, 2 ** i) for i in range(4))
        self.heads = nn.ModuleDict({m: nn.Sequential(nn.Linear(2 * width, 24), nn.GELU(), nn.Linear(24, 1)) for m in MILLS})

    def forward(self, spectra, mill):
        h = self.stem(self.baseline(spectra).unsqueeze(1))
        for block in self.blocks:
            h = block(h)
        pooled = torch.cat([h.mean(-1), h.amax(-1)], -1)
        return self.heads[mill](pooled).squeeze(-1)


def train(model, source, steps, lr):
    step_model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    errors = {m: [] for m in MILLS}
    for step, mill in zip(range(steps), itertools.cycle(MILLS)):
        spectra, size = source.sample(mill)
        error = F.smooth_l1_loss(step_model(spectra, mill), size)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors[mill].append(error.detach())
    return {m: torch.stack(e[-4:]).mean().item() for m, e in errors.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(1)
    began = time.time()
    model = MillModel()
    errors = train(model, SpectrumSource(args.batch, 0), args.rounds * len(MILLS), 2e-3)
    worst = max(errors, key=errors.get)
    print(f"mean error {np.mean(list(errors.values())):.4f}, worst {worst} {errors[worst]:.4f}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
