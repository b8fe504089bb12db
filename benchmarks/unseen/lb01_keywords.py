"""Small-footprint keyword spotting (12 words) on synthetic utterances.

A depthwise-separable CNN over log-mel patches, trained with SpecAugment whose
strength is warmed up over the epochs, as in the large-vocabulary recipes.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SR, SECONDS, N_MELS, N_FFT, HOP = 8000, 1.0, 40, 256, 80
WORDS = ["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "unknown", "silence"]
BATCH, EPOCHS = 32, 11


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(int(SR * SECONDS)) / SR
    labels = torch.randint(len(WORDS), (n,), generator=g)
    pitch = 180 + 60 * torch.rand(n, 1, generator=g)
    sweep = (labels.float() - 5.5).unsqueeze(1) * 110
    phase = 2 * math.pi * ((pitch * 3 + 700) * t + 0.5 * sweep * t ** 2)
    wav = torch.sin(phase) + 0.4 * torch.sin(2 * phase) + 0.3 * torch.randn(n, t.numel(), generator=g)
    return wav, labels


def mel_bank():
    def mel(f):
        return 2595 * math.log10(1 + f / 700)

    edges = torch.linspace(mel(40), mel(SR / 2), N_MELS + 2)
    hz = 700 * (10 ** (edges / 2595) - 1)
    freqs = torch.linspace(0, SR / 2, N_FFT // 2 + 1)
    up = (freqs[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - freqs[None]) / (hz[2:] - hz[1:-1])[:, None]
    return torch.minimum(up, down).clamp_min(0)


def log_mel(wav, bank):
    spec = torch.stft(wav, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True).abs() ** 2
    feats = torch.log(bank @ spec + 1e-6)
    return (feats - feats.mean((1, 2), keepdim=True)) / feats.std((1, 2), keepdim=True)


class SpecAugment(nn.Module):
    """Masks one band of mels and one span of frames per utterance."""

    def __init__(self, max_freq=10, max_time=28, warmup=EPOCHS):
        super().__init__()
        self.max_freq, self.max_time, self.warmup = max_freq, max_time, warmup
        self.freq_width = self.time_width = 1

    def set_epoch(self, epoch):
        ratio = (epoch + 1) / self.warmup
        self.freq_width = max(1, round(self.max_freq * ratio))
        self.time_width = max(1, round(self.max_time * ratio))

    def _band(self, size, width, batch, device):
        start = torch.rand(batch, 1, device=device) * (size - width)
        length = torch.rand(batch, 1, device=device) * width
        pos = torch.arange(size, device=device)
        return (pos >= start) & (pos < start + length)

    def forward(self, x):
        if not self.training:
            return x
        f = self._band(x.shape[2], self.freq_width, x.shape[0], x.device)
        t = self._band(x.shape[3], self.time_width, x.shape[0], x.device)
        return x.masked_fill(f[:, None, :, None] | t[:, None, None, :], 0.0)


class DSBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.dw = nn.Conv2d(ch, ch, 3, padding=1, groups=ch, bias=False)
        self.pw = nn.Conv2d(ch, ch, 1, bias=False)
        self.n1, self.n2 = nn.GroupNorm(4, ch), nn.GroupNorm(4, ch)

    def forward(self, x):
        return x + F.silu(self.n2(self.pw(F.silu(self.n1(self.dw(x))))))


class KeywordNet(nn.Module):
    def __init__(self, ch=24, depth=3):
        super().__init__()
        self.augment = SpecAugment()
        self.stem = nn.Conv2d(1, ch, (8, 10), stride=(2, 4), bias=False)
        self.blocks = nn.Sequential(*[DSBlock(ch) for _ in range(depth)])
        self.head = nn.Linear(ch, len(WORDS))

    def forward(self, feats):
        x = self.augment(feats.unsqueeze(1))
        x = self.blocks(F.silu(self.stem(x)))
        return self.head(x.mean((2, 3)))


def main():
    torch.manual_seed(0)
    bank = mel_bank()
    wav, labels = make_corpus(320, 1)
    feats = log_mel(wav, bank)
    wav, test_labels = make_corpus(128, 2)
    test_feats = log_mel(wav, bank)

    net = KeywordNet()
    spotter = torch.compile(net)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    start = time.time()
    for epoch in range(EPOCHS):
        net.train()
        net.augment.set_epoch(epoch)
        running = torch.zeros(())
        for idx in torch.randperm(len(feats)).split(BATCH):
            loss = F.cross_entropy(spotter(feats[idx]), labels[idx], label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            running += loss.detach()
        net.eval()
        with torch.no_grad():
            hits = sum((spotter(f).argmax(1) == y).sum() for f, y in zip(test_feats.split(BATCH), test_labels.split(BATCH)))
        print(f"epoch {epoch:2d} loss {running.item() / (len(feats) / BATCH):.3f} "
              f"acc {hits.item() / len(test_feats):.3f} ({time.time() - start:.0f}s)", flush=True)


if __name__ == "__main__":
    main()
