import math
import random
import time

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

SAMPLES, RATE, BANDS, FRAMES = 2048, 4000, 16, 32
WORDS = 5


class Keywords(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.time = torch.arange(SAMPLES) / RATE

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.seed * 65537 + i)
        label = i % WORDS
        start = 200 + 150 * label
        sweep = start + (400 - 120 * label) * self.time
        wave = torch.sin(2 * math.pi * sweep * self.time)
        return wave + 0.5 * torch.randn(SAMPLES, generator=gen), label


class Frontend(nn.Module):
    """Log energies of triangular bands, from framed real DFT matrices."""

    def __init__(self):
        super().__init__()
        win = SAMPLES // FRAMES
        k = torch.arange(win // 2)[None] * torch.arange(win)[:, None] * 2 * math.pi / win
        hann = torch.hann_window(win)[:, None]
        self.register_buffer("cos", k.cos() * hann)
        self.register_buffer("sin", k.sin() * hann)
        centres = torch.linspace(0, win // 2 - 1, BANDS)
        self.register_buffer("bands", (1 - (torch.arange(win // 2)[:, None] - centres).abs() / 2).clamp(min=0))

    def forward(self, wave):
        f = wave.view(len(wave), FRAMES, -1)
        power = (f @ self.cos).square() + (f @ self.sin).square()
        return (power @ self.bands + 1e-4).log()


class SpecAugment:
    def __init__(self, freq=4, span=6, seed=0):
        self.freq, self.span = freq, span
        self.rng = random.Random(seed)

    def __call__(self, spec):
        spec = spec.clone()
        f = self.rng.randrange(BANDS - self.freq)
        t = self.rng.randrange(FRAMES - self.span)
        spec[:, :, f:f + self.freq] = 0.0
        spec[:, t:t + self.span, :] = 0.0
        return spec


class TDNN(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.l1 = nn.Linear(BANDS * 3, width)
        self.l2 = nn.Linear(width * 3, width)
        self.out = nn.Linear(width * 2, WORDS)

    @staticmethod
    def context(x):
        return torch.cat([x[:, :-2], x[:, 1:-1], x[:, 2:]], -1)

    def forward(self, x):
        x = F.relu(self.l1(self.context(x)))
        x = F.relu(self.l2(self.context(x)))
        return self.out(torch.cat([x.mean(1), x.amax(1)], -1))


class Trainer:
    def __init__(self, epochs=3):
        self.device = torch.device("xla")
        self.frontend = Frontend().to(self.device)
        self.net = TDNN().to(self.device)
        self.augment = SpecAugment()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, epochs)
        self.train_set = DataLoader(Keywords(160, 1), batch_size=16, shuffle=True)
        self.test_set = DataLoader(Keywords(480, 2), batch_size=16)
        self.epochs = epochs

    def train_epoch(self):
        self.net.train()
        total = torch.zeros((), device=self.device)
        for wave, label in self.train_set:
            wave, label = wave.to(self.device), label.to(self.device)
            spec = self.augment(self.frontend(wave))
            loss = F.cross_entropy(self.net(spec), label, label_smoothing=0.05)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.detach()
            xm.mark_step()
        return total.item() / len(self.train_set)

    @torch.no_grad()
    def test(self):
        self.net.eval()
        hits = torch.zeros(WORDS, device=self.device)
        for wave, label in self.test_set:
            wave, label = wave.to(self.device), label.to(self.device)
            right = self.net(self.frontend(wave)).argmax(1) == label
            hits += (F.one_hot(label, WORDS) * right[:, None]).sum(0)
        return (hits.cpu() / (len(self.test_set.dataset) / WORDS)).tolist()

    def run(self):
        for epoch in range(self.epochs):
            began = time.time()
            loss = self.train_epoch()
            accuracy = self.test()
            self.sched.step()
            print(f"epoch {epoch} loss {loss:.3f} accuracy {[round(a, 2) for a in accuracy]} "
                  f"{time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer().run()
