"""Bird-song classifier on log-mel features computed from raw waveforms."""
import math

import numpy as np
import torch_xla
import torch_xla.core.xla_model as xm
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, SPECIES = 4000, 1.0, 6
N_FFT, HOP, MELS = 128, 64, 20


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filters():
    points = [mel_to_hz(hz_to_mel(60) + i * (hz_to_mel(RATE / 2) - hz_to_mel(60)) / (MELS + 1))
              for i in range(MELS + 2)]
    bank = np.zeros((MELS, N_FFT // 2 + 1))
    for m in range(MELS):
        left, center, right = points[m:m + 3]
        for k in range(bank.shape[1]):
            f = k * RATE / N_FFT
            if left < f <= center:
                bank[m, k] = (f - left) / (center - left)
            elif center < f < right:
                bank[m, k] = (right - f) / (right - center)
    return bank


def log_mel(wave):
    window = np.hanning(N_FFT)
    bank = mel_filters()
    frames = []
    for start in range(0, len(wave) - N_FFT + 1, HOP):
        spectrum = np.abs(np.fft.rfft(wave[start:start + N_FFT] * window)) ** 2
        frames.append(np.log(bank @ spectrum + 1e-6))
    feats = np.stack(frames, 1)
    return ((feats - feats.mean()) / (feats.std() + 1e-6)).astype(np.float32)


class BirdSongs(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(int(RATE * SECONDS)) / RATE
        self.labels = rng.integers(0, SPECIES, n)
        self.waves = []
        for y in self.labels:
            f = 300 + 180 * y + rng.normal() * 20
            chirp = np.sin(2 * np.pi * (f * t + (40 + 25 * y) * np.sin(2 * np.pi * 3 * t) / 6))
            self.waves.append((chirp + 0.6 * rng.normal(size=t.shape)).astype(np.float32))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(log_mel(self.waves[i])), int(self.labels[i])


class SongNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(MELS, width, 5, stride=2), nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, SPECIES))

    def forward(self, x):
        return self.net(x)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = torch.zeros((), device=device)
    for x, y in loader:
        hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        xm.mark_step()
    model.train()
    return hits.item() / len(loader.dataset)


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(BirdSongs(192, 0), batch_size=24, shuffle=True)
    valid = DataLoader(BirdSongs(48, 1), batch_size=24)
    model = SongNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        total = torch.zeros((), device=device)
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
            xm.mark_step()
        scheduler.step()
        if epoch % 3 == 2:
            print(f"epoch {epoch} loss {total.item() / len(train):.3f} "
                  f"valid {evaluate(model, valid, device):.3f}", flush=True)


if __name__ == "__main__":
    main()
