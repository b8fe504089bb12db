"""Acoustic wave propagation over a salt body: forward modelling of a few shots.

Second order in time, fourth order in space, sponge boundaries. Wavefields are
kept at the times that the imaging group asked for: dense in the early arrivals,
sparse in the coda.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

NX, NZ = 128, 96
DX, DT = 10.0, 0.001
SHOTS = 2
IMAGE_TIMES = np.geomspace(0.012, 0.330, 10)


def velocity_model():
    v = torch.full((NZ, NX), 1800.0)
    depth = torch.arange(NZ).view(-1, 1) * DX
    v += 0.9 * depth
    z = (torch.arange(NZ).view(-1, 1) - 55.0) / 14.0
    x = (torch.arange(NX).view(1, -1) - 70.0) / 26.0
    v[(z ** 2 + x ** 2) < 1.0] = 4200.0
    return v


def sponge(width=16, strength=0.012):
    def ramp(n):
        d = torch.arange(n).float()
        d = torch.minimum(d, n - 1 - d)
        return torch.exp(-(strength * (width - d).clamp(min=0)) ** 2)
    return ramp(NZ).view(-1, 1) * ramp(NX).view(1, -1)


def ricker(frequency, count):
    t = torch.arange(count) * DT - 1.2 / frequency
    a = (math.pi * frequency * t) ** 2
    return (1 - 2 * a) * torch.exp(-a)


class Propagator:
    def __init__(self, velocity, device):
        taps = torch.tensor([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12])
        kernel = torch.zeros(1, 1, 5, 5)
        kernel[0, 0, 2, :] += taps
        kernel[0, 0, :, 2] += taps
        self.kernel = kernel.to(device)
        self.courant = ((velocity * DT / DX) ** 2).to(device)
        self.taper = sponge().to(device)
        self.device = device

    def begin(self, source_x):
        self.now = torch.zeros(1, 1, NZ, NX, device=self.device)
        self.before = torch.zeros(1, 1, NZ, NX, device=self.device)
        source = torch.zeros(1, 1, NZ, NX)
        source[0, 0, 6, source_x] = 1.0
        self.source = source.to(self.device)
        self.step_index = 0

    def step(self, wavelet):
        laplacian = F.conv2d(self.now, self.kernel, padding=2)
        after = 2 * self.now - self.before + self.courant * laplacian
        after = after + wavelet[self.step_index] * self.source
        self.before = self.now * self.taper
        self.now = after * self.taper
        self.step_index += 1

    def advance_to(self, time, wavelet):
        target = int(round(time / DT))
        while self.step_index < target:
            self.step(wavelet)
        xm.mark_step()


def main():
    device = torch_xla.device()
    propagator = Propagator(velocity_model(), device)
    total_steps = int(round(IMAGE_TIMES[-1] / DT)) + 1
    wavelet = ricker(18.0, total_steps).tolist()
    gather = []
    for shot in range(SHOTS):
        propagator.begin(source_x=30 + 25 * shot)
        images = []
        for time in IMAGE_TIMES:
            propagator.advance_to(time, wavelet)
            images.append(propagator.now)
        gather.append(torch.cat(images, 1).cpu())
        energy = gather[-1].pow(2).sum((0, 2, 3)).sqrt()
        print(f"shot {shot}: energy", [f"{e:.3g}" for e in energy.tolist()])
    stack = torch.cat(gather).mean(0)
    print("stacked image", tuple(stack.shape), f"peak {stack.abs().max():.4f}")


if __name__ == "__main__":
    main()
