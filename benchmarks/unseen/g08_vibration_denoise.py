"""Denoising autoencoder for bearing vibration windows, with a regularisation ramp."""
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class GatedConv(nn.Module):
    def __init__(self, cin, cout, k=5, stride=1):
        super().__init__()
        self.conv = nn.Conv1d(cin, 2 * cout, k, stride=stride, padding=k // 2)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, dim=1)
        return self.norm(a * torch.sigmoid(b))


class ChannelBlank(nn.Module):
    """Blank the last `width` samples of a window, like a sensor that drops out."""

    def __init__(self):
        super().__init__()
        self.width = 0

    def forward(self, x):
        if self.width == 0:
            return x
        keep = x[..., : x.shape[-1] - self.width]
        return F.pad(keep, (0, self.width))


class Denoiser(nn.Module):
    def __init__(self, channels=3, hidden=16):
        super().__init__()
        self.blank = ChannelBlank()
        self.enc = GatedConv(channels, hidden, stride=2)
        self.up = nn.ConvTranspose1d(hidden, hidden, 4, stride=2, padding=1)
        self.head = nn.Conv1d(hidden, channels, 1)

    def forward(self, noisy):
        h = self.enc(self.blank(noisy))
        return self.head(F.gelu(self.up(h)))


class Curriculum:
    """Things that get harder during training. Each entry is (object, attribute, fn(progress))."""

    def __init__(self, total):
        self.total = total
        self.entries = []
        self.n = 0

    def attach(self, obj, attr, fn):
        self.entries.append((obj, attr, fn))

    def tick(self):
        self.n += 1
        p = min(1.0, self.n / self.total)
        for obj, attr, fn in self.entries:
            setattr(obj, attr, fn(p))


def windows(n, length, gen):
    t = torch.arange(length) / length
    f = 3 + 20 * torch.rand(n, 3, 1, generator=gen)
    ph = 2 * math.pi * torch.rand(n, 3, 1, generator=gen)
    return torch.sin(2 * math.pi * f * t + ph) * (0.5 + torch.rand(n, 3, 1, generator=gen))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--length", type=int, default=256)
    ap.add_argument("--noise", type=float, default=0.3)
    args = ap.parse_args()

    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(1)
    clean = windows(2048, args.length, gen)

    net = Denoiser()
    sched = Curriculum(args.steps)
    sched.attach(net.blank, "width", lambda p: int(48 * p) // 12 * 12)
    model = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)

    running = torch.zeros(())
    t0 = time.time()
    for step in range(args.steps):
        idx = torch.randint(0, clean.shape[0], (args.batch,), generator=gen)
        target = clean[idx]
        noisy = target + args.noise * torch.randn(target.shape, generator=gen)
        loss = F.smooth_l1_loss(model(noisy), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.tick()
        running = 0.95 * running + 0.05 * loss.detach()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {running.item():.4f} blank {net.blank.width} {time.time() - t0:.1f}s")

    torch.save(net.state_dict(), "/tmp/denoiser_g08.pt")


if __name__ == "__main__":
    main()
