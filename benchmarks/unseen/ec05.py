"""Keyword spotting on synthetic audio: log-mel front end, small conv-recurrent net, SpecAugment."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, CLIP, N_FFT, HOP, MELS, CLASSES = 8000, 4000, 256, 50, 32, 8


def synth(n, seed):
    """Each class is a two-tone chirp with its own base pitch and slope."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=g)
    t = torch.arange(CLIP) / RATE
    base = 300 + 250 * (y % 4)[:, None] + 30 * torch.randn(n, 1, generator=g)
    slope = torch.where(y < 4, 600.0, -500.0)[:, None]
    phase = 2 * math.pi * (base * t + 0.5 * slope * t * t)
    wave = phase.sin() + 0.5 * (2 * phase).sin() + 1.0 * torch.randn(n, CLIP, generator=g)
    return wave, y


def mel_bank():
    hz = torch.linspace(0, RATE / 2, N_FFT // 2 + 1)
    mel = lambda f: 2595 * math.log10(1 + f / 700)
    edges = 700 * (10 ** (torch.linspace(mel(40), mel(RATE / 2), MELS + 2) / 2595) - 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((hz - lo) / (mid - lo), (hi - hz) / (hi - mid)).clamp(min=0)


class FrontEnd(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("win", torch.hann_window(N_FFT))
        self.register_buffer("bank", mel_bank())

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.win, return_complex=True).abs().pow(2)
        x = (self.bank @ spec + 1e-5).log()
        return (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)


class MinGRU(nn.Module):
    """Gated recurrence h_t = (1-z_t) h_{t-1} + z_t c_t over the frames."""

    def __init__(self, dim):
        super().__init__()
        self.zc = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        z, c = self.zc(x).chunk(2, -1)
        z, c = z.sigmoid(), c.tanh()
        h = torch.zeros_like(c[:, 0])
        for t in range(x.shape[1]):
            h = (1 - z[:, t]) * h + z[:, t] * c[:, t]
        return h


class Spotter(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, dim, 5, padding=2)
        self.conv2 = nn.Conv1d(dim, dim, 3, padding=1)
        self.rnn = MinGRU(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, mel):
        x = F.relu(self.conv2(F.relu(self.conv1(mel))))
        return self.head(self.rnn(x.transpose(1, 2)))


def spec_augment(mel, width):
    b, f, t = mel.shape
    start = torch.randint(0, t - width, (b, 1, 1))
    pos = torch.arange(t)
    return mel.masked_fill((pos >= start) & (pos < start + width), 0.0)


class Trainer:
    def __init__(self, batch=50):
        self.front, self.net = FrontEnd(), Spotter()
        self.opt = torch.optim.Adam(self.net.parameters(), 3e-3)
        self.batch = batch
        self.forward = torch.compile(self.net, backend="aot_eager")

    def epoch(self, wave, y, width):
        total = torch.zeros(())
        for idx in torch.randperm(len(y)).split(self.batch):
            mel = spec_augment(self.front(wave[idx]), width)
            loss = F.cross_entropy(self.forward(mel), y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.detach()
        return total.item() / (len(y) // self.batch)

    @torch.no_grad()
    def accuracy(self, wave, y):
        hits = sum((self.net(self.front(w)).argmax(-1) == t).sum()
                   for w, t in zip(wave.split(self.batch), y.split(self.batch)))
        return hits.item() / len(y)


if __name__ == "__main__":
    torch.manual_seed(0)
    wave, y = synth(800, 0)
    test_wave, test_y = synth(200, 1)
    tr = Trainer()
    for e in range(4):
        t0 = time.time()
        loss = tr.epoch(wave, y, width=4 + e)
        print(f"epoch {e} loss {loss:.3f} acc {tr.accuracy(test_wave, test_y):.3f} "
              f"{time.time() - t0:.1f}s", flush=True)
