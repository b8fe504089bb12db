"""Which of eight call types is in a bird recording: log filterbank features from waveforms, compiled conv-attention net."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE, SECONDS, N_FFT, HOP, BANDS, TYPES = 8000, 0.8, 256, 128, 32, 8
rng = np.random.default_rng(17)
torch.manual_seed(17)


def call(kind):
    """A chirp whose sweep, trill and overtones depend on the kind, at a random time in noise."""
    t = np.arange(int(RATE * SECONDS)) / RATE
    start, length = rng.uniform(0.05, 0.3), rng.uniform(0.25, 0.4)
    envelope = np.exp(-(((t - start - length / 2) / (0.35 * length)) ** 2))
    f0 = 900 + 180 * (kind % 4) + 60 * rng.normal()
    sweep = (-1) ** kind * (400 + 150 * (kind // 4))
    trill = 1 + 0.5 * (kind // 2 % 2) * np.sin(2 * math.pi * 30 * t)
    phase = 2 * math.pi * (f0 * t + 0.5 * sweep * t**2)
    wave = envelope * trill * (np.sin(phase) + 0.4 * np.sin(2 * phase))
    return wave + 0.25 * rng.normal(size=t.shape)


def filterbank():
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10 ** (np.linspace(mel(100), mel(RATE / 2), BANDS + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    bank = np.zeros((BANDS, len(freqs)))
    for b in range(BANDS):
        left, mid, right = edges[b : b + 3]
        for k, f in enumerate(freqs):
            bank[b, k] = max(0.0, min((f - left) / (mid - left), (right - f) / (right - mid)))
    return bank


def features(wave):
    """Log energies in mel bands: frames x bands."""
    bank = filterbank()
    window = np.hanning(N_FFT)
    rows = []
    for begin in range(0, len(wave) - N_FFT + 1, HOP):
        spectrum = np.abs(np.fft.rfft(window * wave[begin : begin + N_FFT])) ** 2
        rows.append(np.log(bank @ spectrum + 1e-6))
    return np.stack(rows)


def batch_of(waves, kinds, idx):
    x = np.stack([features(waves[i]) for i in idx])
    x = (x - x.mean(axis=(1, 2), keepdims=True)) / x.std(axis=(1, 2), keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(kinds[idx])


class CallNet(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(BANDS, dim, 5, padding=2), nn.GELU(), nn.Conv1d(dim, dim, 5, padding=2), nn.GELU())
        self.norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, 4)
        self.mix = nn.Linear(4 * dim, dim)
        self.head = nn.Linear(dim, TYPES)

    def forward(self, x):
        h = self.norm(self.front(x.transpose(1, 2)).transpose(1, 2))
        weight = torch.softmax(self.query(h), dim=1)
        pooled = torch.einsum("btd,btk->bkd", h, weight).flatten(1)
        return self.head(F.gelu(self.mix(pooled)))


def loader(waves, kinds, size, shuffle):
    order = rng.permutation(len(waves)) if shuffle else np.arange(len(waves))
    for i in range(0, len(order), size):
        yield batch_of(waves, kinds, order[i : i + size])


def main(epochs=5, size=64):
    kinds = rng.integers(0, TYPES, 1280)
    waves = np.stack([call(k) for k in kinds])
    cut = 1024
    net = CallNet().double()  # the features are doubles
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    for epoch in range(epochs):
        t0, total = time.perf_counter(), torch.zeros((), dtype=torch.float64)
        model.train()
        for x, y in loader(waves[:cut], kinds[:cut], size, True):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
        model.eval()
        right = torch.zeros((), dtype=torch.long)
        with torch.no_grad():
            for x, y in loader(waves[cut:], kinds[cut:], size, False):
                right += (model(x).argmax(dim=1) == y).sum()
        print(f"epoch {epoch}: loss {total.item() * size / cut:.4f}  valid accuracy {right.item() / (len(waves) - cut):.3f}  "
              f"{time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
