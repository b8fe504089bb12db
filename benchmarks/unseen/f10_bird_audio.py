"""Bird call recognition: log-spectra of synthetic calls, circular time shift as augmentation."""
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

RATE, LENGTH, SPECIES = 2000, 1024, 6


def background(n, rnd):
    """Pinkish noise, Voss style."""
    rows = [0.0] * 6
    out = []
    for i in range(n):
        for r in range(6):
            if i % (1 << r) == 0:
                rows[r] = rnd.gauss(0, 1)
        out.append(sum(rows) / 12)
    return out


class CallGenerator:
    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.t = torch.arange(LENGTH) / RATE
        self.base = [150 + 90 * k for k in range(SPECIES)]

    def clip(self):
        s = self.rnd.randrange(SPECIES)
        f = self.base[s] * self.rnd.uniform(0.95, 1.05)
        chirp = torch.sin(2 * math.pi * (f * self.t + 60 * self.t ** 2))
        gate = torch.exp(-((self.t - 0.25) / 0.08) ** 2)
        return chirp * gate + torch.tensor(background(LENGTH, self.rnd)), s

    def batch(self, n):
        waves, labels = zip(*(self.clip() for _ in range(n)))
        return torch.stack(waves), torch.tensor(labels)


class TimeShift(nn.Module):
    """Rotates the clip by a random share, in tenths of its length."""

    def __init__(self, tenths=8, seed=0):
        super().__init__()
        self.tenths, self.rnd = tenths, random.Random(seed)

    def forward(self, wave):
        if not self.training:
            return wave
        by = LENGTH * self.rnd.randrange(1, self.tenths) // 10
        return torch.roll(wave, by, dims=-1)


class Spectra(nn.Module):
    def __init__(self, frame=64, bands=24):
        super().__init__()
        n = torch.arange(frame)
        k = torch.linspace(2, 30, bands)
        angle = 2 * math.pi * k[:, None] * n / frame
        self.frame = frame
        self.register_buffer("re", torch.cos(angle).t().contiguous())
        self.register_buffer("im", torch.sin(angle).t().contiguous())

    def forward(self, wave):
        x = wave.view(wave.shape[0], -1, self.frame)
        return torch.log1p((x @ self.re).square() + (x @ self.im).square())


class BirdNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.spectra = TimeShift(), Spectra()
        self.up = nn.Linear(24, 64)
        self.score = nn.Linear(64, 1)
        self.head = nn.Linear(64, SPECIES)

    def forward(self, wave):
        h = F.relu(self.up(self.spectra(self.shift(wave))))
        w = self.score(h).softmax(1)
        return self.head((h * w).sum(1))


def main():
    torch.manual_seed(0)
    dev = xm.xla_device()
    net = BirdNet().to(dev)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    calls = CallGenerator(0)
    correct = torch.zeros((), device=dev)
    for step in range(1, 121):
        wave, label = calls.batch(24)
        wave, label = wave.to(dev), label.to(dev)
        logits = net(wave)
        loss = F.cross_entropy(logits, label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.argmax(1) == label).float().mean()
        xm.mark_step()
        if step % 60 == 0:
            print(f"{step}: loss {loss.item():.3f} mean acc {correct.item() / step:.3f}")


if __name__ == "__main__":
    main()
