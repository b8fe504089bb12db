"""A surrogate of 1D heat flow, trained on two resolutions of grid (coarse first, then fine); compiled with aot_eager."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("surrogate")


def simulate(u, conductivity, steps):
    """Explicit finite differences with insulated ends; the reference for training."""
    for _ in range(steps):
        padded = F.pad(u, (1, 1), mode="replicate")
        u = u + conductivity * (padded[..., 2:] - 2 * u + padded[..., :-2])
    return u


def make_batch(rows, cells, gen):
    u = F.avg_pool1d(torch.randn(rows, 1, cells + 8, generator=gen), 9, stride=1)
    conductivity = 0.1 + 0.3 * torch.rand(rows, 1, 1, generator=gen)
    return u, conductivity, simulate(u, conductivity, 12)


class SpectralMix(nn.Module):
    """Multiplies the lowest frequencies by learned weights, whatever the resolution."""

    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(2, width, width, modes) / width)

    def forward(self, x):
        n = x.shape[-1]
        spectrum = torch.fft.rfft(x)[..., : self.modes]
        mixed = torch.einsum("bim,iom->bom", spectrum, torch.complex(self.weight[0], self.weight[1]))
        return torch.fft.irfft(F.pad(mixed, (0, n // 2 + 1 - self.modes)), n=n)


class Surrogate(nn.Module):
    def __init__(self, width=16, modes=8, depth=2):
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1)
        self.mixes = nn.ModuleList(SpectralMix(width, modes) for _ in range(depth))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.drop = nn.Dropout(0.05)
        self.out = nn.Conv1d(width, 1, 1)
        self.calls = 0

    def forward(self, u, conductivity):
        h = self.lift(torch.cat([u, conductivity.expand_as(u)], dim=1))
        for mix, skip in zip(self.mixes, self.skips):
            h = F.gelu(mix(h) + skip(h))
        return u + self.out(self.drop(h))


class RunningMean:
    def __init__(self):
        self.total, self.n = torch.zeros(()), 0

    def add(self, value):
        self.total += value.detach()
        self.n += 1

    def value(self):
        mean = self.total.item() / max(1, self.n)
        self.total.zero_()
        self.n = 0
        return mean


@torch.no_grad()
def test_error(model, compiled, batch):
    model.eval()
    u, conductivity, target = batch
    error = F.mse_loss(compiled(u, conductivity), target) / target.var()
    model.train()
    return error.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--steps", type=int, default=30, help="at each resolution")
    parser.add_argument("--rows", type=int, default=32)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)

    model = Surrogate()
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for cells in args.cells:
        held_out, mean = make_batch(args.rows, cells, gen), RunningMean()
        for step in range(1, args.steps + 1):
            u, conductivity, target = make_batch(args.rows, cells, gen)
            model.calls += 1
            loss = F.mse_loss(compiled(u, conductivity), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean.add(loss)
            if step % 10 == 0:
                log.info("%d cells, call %d: loss %.4f, test %.4f", cells, model.calls, mean.value(), test_error(model, compiled, held_out))


if __name__ == "__main__":
    main()
