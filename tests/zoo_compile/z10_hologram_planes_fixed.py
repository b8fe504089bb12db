"""Phase-only hologram optimisation on a quantised spatial light modulator, through several focal planes."""
import random

import torch
from torch import nn

SIZE, LEVELS = 32, 16


@torch.library.custom_op("slm::dither", mutates_args=())
def dither(phase: torch.Tensor, levels: int) -> torch.Tensor:
    """Ordered dithering to the modulator's grey levels (reference implementation of the driver)."""
    bayer = torch.tensor([[0.0, 2.0], [3.0, 1.0]]) / 4
    threshold = bayer.repeat(phase.shape[0] // 2, phase.shape[1] // 2)
    scaled = (phase / (2 * torch.pi) + 0.5) * levels
    return ((scaled + threshold).floor() / levels - 0.5) * 2 * torch.pi


def _through(ctx, grad):
    return grad, None


dither.register_autograd(_through)


@dither.register_fake
def _like(phase, levels):
    return torch.empty_like(phase)

def dense_transfer(distance):
    """Separable propagation as real matrices; small fields make FFTs pointless here."""
    f = torch.fft.fftfreq(SIZE)
    kernel = torch.fft.ifft(torch.polar(torch.ones(SIZE), -torch.pi * distance * f ** 2))
    index = (torch.arange(SIZE)[:, None] - torch.arange(SIZE)[None]) % SIZE
    return kernel.real[index].contiguous(), kernel.imag[index].contiguous()


class Bench(nn.Module):
    def __init__(self, beam=10.0):
        super().__init__()
        axis = torch.arange(SIZE) - (SIZE - 1) / 2
        self.register_buffer("beam", torch.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * beam ** 2)))
        self.aberration = nn.Parameter(torch.zeros(4))
        x = axis / axis.max()
        modes = [x[:, None].expand(SIZE, SIZE), x[None].expand(SIZE, SIZE),
                 x[:, None] * x[None], x[:, None] ** 2 + x[None] ** 2]
        self.register_buffer("modes", torch.stack(modes))

    def forward(self, phase, transfers):
        shown = dither(torch.remainder(phase + torch.pi, 2 * torch.pi) - torch.pi, LEVELS)
        shown = shown + (self.aberration[:, None, None] * self.modes).sum(0)
        re, im = self.beam * torch.cos(shown), self.beam * torch.sin(shown)
        a, b = transfers
        left_re, left_im = a @ re - b @ im, a @ im + b @ re
        out_re, out_im = left_re @ a.mT - left_im @ b.mT, left_re @ b.mT + left_im @ a.mT
        intensity = out_re.square() + out_im.square()
        return intensity / intensity.mean((1, 2), keepdim=True)


def fidelity(intensities, targets):
    contrast = torch.log1p(intensities) - torch.log1p(targets)
    edge = intensities.diff(dim=1).abs().mean((1, 2)) + intensities.diff(dim=2).abs().mean((1, 2))
    loss = torch.nn.functional.smooth_l1_loss(contrast, torch.zeros_like(contrast), reduction="none").mean((1, 2))
    return (loss + 1e-3 * edge).mean()


def stacked(planes):
    """Planes as one tensor, whose first dimension is dynamic."""
    stack = torch.stack(planes)
    torch._dynamo.mark_dynamic(stack, 0)
    return stack


def spots(count):
    target = torch.full((SIZE, SIZE), 0.05)
    for _ in range(count):
        r, c = (torch.randint(4, SIZE - 4, (1,)).item() for _ in range(2))
        target[r - 1:r + 2, c - 1:c + 2] += 8.0
    return target / target.mean()


def main():
    torch.manual_seed(21)
    rng = random.Random(21)
    bench = Bench()
    propagate = torch.compile(bench)
    score = torch.compile(fidelity)
    scene = [(dense_transfer(40 + 25 * k), spots(3)) for k in range(6)]
    phase = nn.Parameter(0.1 * torch.randn(SIZE, SIZE))
    optimizer = torch.optim.Adam([{"params": [phase], "lr": 0.05}, {"params": bench.parameters(), "lr": 0.005}])
    for iteration in range(1500):
        planes = rng.sample(scene, rng.randint(2, 5))
        intensities = propagate(phase, tuple(stacked(part) for part in zip(*(transfer for transfer, _ in planes))))
        torch._dynamo.mark_dynamic(intensities, 0)
        loss = score(intensities, stacked([target for _, target in planes]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if iteration % 300 == 0:
            print(f"iteration {iteration}: loss {loss.item():.4f}, aberration {bench.aberration.norm().item():.3f}")


if __name__ == "__main__":
    main()
