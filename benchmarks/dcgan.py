"""A step of DCGAN (Radford et al. 2016) on xla and in PyTorch's eager mode: convolutions, transposed ones too.

    OMP_NUM_THREADS=1 python benchmarks/dcgan.py [--batch 16] [--steps 5]

The generator makes images of 64 x 64, both networks have 64 channels where they have the least, and Adam. CPU seconds
of the process, which is pinned to one core: the first step, with what it compiles, and the least of the others.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import torch
from torch import nn

import xlaprof.runtime as xr

os.environ.setdefault("XLAPROF_CACHE_DIR", "off")  # compiling is part of what is measured

NOISE, CHANNELS = 100, 64


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def generator() -> nn.Module:
    """``f32[n, 100, 1, 1]`` to ``f32[n, 3, 64, 64]``."""
    layers: list[nn.Module] = []
    inputs = NOISE
    for times in (8, 4, 2, 1):
        outputs = CHANNELS * times
        convolution = nn.ConvTranspose2d(inputs, outputs, 4, 1 if times == 8 else 2, 0 if times == 8 else 1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(True)]
        inputs = outputs
    return nn.Sequential(*layers, nn.ConvTranspose2d(inputs, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator() -> nn.Module:
    """``f32[n, 3, 64, 64]`` to ``f32[n, 1, 1, 1]``."""
    layers: list[nn.Module] = []
    inputs = 3
    for times in (1, 2, 4, 8):
        outputs = CHANNELS * times
        layers.append(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False))
        layers += [nn.BatchNorm2d(outputs)] if times > 1 else []
        layers.append(nn.LeakyReLU(0.2, inplace=True))
        inputs = outputs
    return nn.Sequential(*layers, nn.Conv2d(inputs, 1, 4, 1, 0, bias=False), nn.Sigmoid())


def make_step(device: str, size: int) -> Callable[[], None]:
    """A function that takes one training step of both networks."""
    torch.manual_seed(0)
    makes, judges = (model().to(device).apply(_initialise) for model in (generator, discriminator))
    adams = [torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)) for model in (makes, judges)]
    loss = nn.BCELoss()
    real = torch.rand(size, 3, 64, 64).to(device)

    def step() -> None:
        yes, no = torch.ones(size, device=device), torch.zeros(size, device=device)
        made = makes(torch.randn(size, NOISE, 1, 1, device=device))
        judges.zero_grad()
        (loss(judges(real).view(-1), yes) + loss(judges(made.detach()).view(-1), no)).backward()
        adams[1].step()
        makes.zero_grad()
        loss(judges(made).view(-1), yes).backward()
        adams[0].step()
        if device == "xla":
            xr.sync(wait=True)

    return step


def measure(device: str, size: int, steps: int) -> tuple[float, float]:
    """CPU seconds of the first step, and the least of the others."""
    start = time.process_time()
    step = make_step(device, size)
    seconds = []
    for _ in range(steps):
        step()
        end = time.process_time()
        seconds.append(end - start)
        start = end
    return seconds[0], min(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16, help="images (default: 16)")
    parser.add_argument("--steps", type=int, default=5, help="of training, three at least (default: 5)")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    found = {device: measure(device, args.batch, max(args.steps, 3)) for device in ("cpu", "xla")}
    for device, (first, later) in found.items():
        print(f"{device:4}  first step {first:6.2f} s   a later one {later:6.2f} s")
    print(f"a later step on xla takes {found['xla'][1] / found['cpu'][1]:.2f} times the CPU's")


if __name__ == "__main__":
    main()
