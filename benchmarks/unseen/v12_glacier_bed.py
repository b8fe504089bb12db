"""Bed topography below a glacier from surface speed and slope: a small convolutional emulator on square tiles."""
import functools
import itertools
import math
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

TILE = 24


def smooth_field(n, generator, roughness):
    """Random fields with a falling spectrum, one per tile."""
    k = torch.fft.fftfreq(TILE)
    decay = 1 / (0.03 + (k[:, None] ** 2 + k[None] ** 2).sqrt()) ** roughness
    noise = torch.randn(n, TILE, TILE, generator=generator)
    field = torch.fft.ifft2(torch.fft.fft2(noise) * decay).real
    return (field - field.mean((1, 2), keepdim=True)) / field.std((1, 2), keepdim=True)


def synthetic_glaciers(n, seed):
    generator = torch.Generator().manual_seed(seed)
    bed = smooth_field(n, generator, 2.0)
    surface = smooth_field(n, generator, 2.6) + 0.3 * bed
    dy, dx = torch.gradient(surface, dim=(1, 2))
    slope = (dy**2 + dx**2).sqrt()
    thickness = F.softplus(surface - bed + 2)
    speed = (0.1 * slope * thickness**2 + 0.02 * torch.randn(n, TILE, TILE, generator=generator)).clamp_min(0).sqrt()
    return torch.stack([surface, slope, speed], 1), bed.unsqueeze(1)


def orientations(tiles):
    """Ice has no preferred direction: any turn or mirroring of a tile is as good as the tile."""
    turns = random.randrange(4)
    tiles = torch.rot90(tiles, turns, (2, 3)) if turns % 2 == 0 else tiles.transpose(2, 3)
    return tiles.flip(3) if random.random() < 0.5 else tiles


def oriented(inputs, bed):
    both = orientations(torch.cat([inputs, bed], 1))
    return both[:, :3], both[:, 3:]


class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.second = nn.Conv2d(channels, channels, 1)
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        return x + self.second(F.silu(self.norm(self.first(x))))


class BedNet(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(channels, d) for d in (1, 2, 4)))
        self.head = nn.Conv2d(channels, 2, 1)

    def forward(self, inputs):
        mean, log_sigma = self.head(self.blocks(self.stem(inputs))).chunk(2, 1)
        return mean, log_sigma.clamp(-3, 2)


def bed_nll(model, inputs, bed):
    mean, log_sigma = model(inputs)
    return (0.5 * ((bed - mean) / log_sigma.exp()) ** 2 + log_sigma).mean()


def warm_cosine(total, warm):
    def factor(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
    return factor


def make_steps(model, optimizer, backend="aot_eager"):
    loss_fn = torch.compile(functools.partial(bed_nll, model), backend=backend)

    @torch.compile(backend=backend)
    def apply_gradients():
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.zero_()

    return loss_fn, apply_gradients


def endless(inputs, bed, size, generator):
    while True:
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(order) - size + 1, size):
            pick = order[start : start + size]
            yield inputs[pick], bed[pick]


@torch.no_grad()
def skill(model, inputs, bed, size=32):
    """Share of the variance of the bed that the mean explains."""
    model.eval()
    left = torch.stack([(model(x)[0] - y).pow(2).mean() for x, y in zip(inputs.split(size), bed.split(size))])
    model.train()
    return 1 - (left.mean() / bed.var()).item()


def main(steps=180, warm=40, size=32):
    random.seed(6)
    torch.manual_seed(6)
    train, held_out = synthetic_glaciers(1024, 0), synthetic_glaciers(128, 1)
    model = BedNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine(steps, warm))
    loss_fn, apply_gradients = make_steps(model, optimizer)
    began, total = time.perf_counter(), 0.0
    stream = endless(*train, size, torch.Generator().manual_seed(2))
    for step, (inputs, bed) in enumerate(itertools.islice(stream, steps), 1):
        loss = loss_fn(*oriented(inputs, bed))
        loss.backward()
        apply_gradients()
        schedule.step()
        total += loss.item()
        if step % 60 == 0:
            print(f"{step:4d} nll {total / 60:.3f} skill {skill(model, *held_out):.3f} {time.perf_counter() - began:.1f} s")
            total = 0.0


if __name__ == "__main__":
    main()
