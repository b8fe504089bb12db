"""Keyword spotting on synthetic audio: log-mel features, a small conv + attention model.

Clips have any length from 0.4 to 1.2 s.  They are grouped into two lengths
on purpose, so that the compiled network only ever sees two shapes.
"""
import math
import random
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

SR, HOP, NFFT, MELS = 8000, 80, 256, 40
BUCKETS = (72, 120)             # frames
WORDS = ("up", "down", "left", "right", "stop", "go")


def mel_matrix():
    """Triangular filters, (bins, mels)."""
    hz = torch.linspace(0, SR / 2, NFFT // 2 + 1)
    top = 2595 * math.log10(1 + SR / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, MELS + 2) / 2595) - 1)
    rise = (hz[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hz[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0)


def synthesise(word, rng):
    """Each word is a chirp with its own formant track, in noise."""
    seconds = rng.uniform(0.4, 1.19)
    t = torch.arange(int(SR * seconds)) / SR
    s = t / seconds
    k = WORDS.index(word)
    f0 = 110 + 40 * rng.random()
    track = 500 + 250 * k + 600 * torch.sin(math.pi * s * (1 + k % 3) + 0.3 * rng.random())
    voice = torch.sin(2 * math.pi * f0 * t) + 0.6 * torch.sin(2 * math.pi * torch.cumsum(track, 0) / SR)
    envelope = torch.sin(math.pi * s) ** 0.5
    return voice * envelope + 0.4 * torch.randn(len(t))


def features(wave, filters, window):
    spec = torch.stft(wave, NFFT, HOP, window=window, return_complex=True).abs().square()
    mel = torch.log(filters.T @ spec + 1e-4)
    return (mel - mel.mean()) / mel.std()


class SpecAttention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.heads = heads
        self.out = nn.Linear(width, len(WORDS))

    def forward(self, x):
        h = F.gelu(self.conv2(F.gelu(self.conv1(x)))).transpose(1, 2)
        b, t, w = h.shape
        q, k, v = self.qkv(self.norm(h)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w)
        return self.out((h + att).mean(1))


def bucketed(dataset, batch, rng):
    """Batches of one bucket each, all full: shapes are (batch, MELS, one of BUCKETS)."""
    groups = defaultdict(list)
    for feat, label in dataset:
        size = next(b for b in BUCKETS if feat.shape[1] <= b)
        groups[size].append((F.pad(feat, (0, size - feat.shape[1])), label))
    result = []
    for items in groups.values():
        rng.shuffle(items)
        for i in range(0, len(items) - batch + 1, batch):
            chunk = items[i:i + batch]
            result.append((torch.stack([f for f, _ in chunk]), torch.tensor([l for _, l in chunk])))
    rng.shuffle(result)
    return result


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    filters, window = mel_matrix(), torch.hann_window(NFFT)

    def collection(n):
        labels = [rng.randrange(len(WORDS)) for _ in range(n)]
        return [(features(synthesise(WORDS[k], rng), filters, window), k) for k in labels]

    train, test = collection(1200), collection(360)
    model = SpecAttention()
    # static shapes: two specialised graphs, traced once each per mode
    net = torch.compile(model, backend="aot_eager", dynamic=False)
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3)
    epochs, batch = 24, 24
    test_batches = bucketed(test, batch, rng)          # made once, used every epoch
    for epoch in range(epochs):
        net.train()
        total, seen = torch.zeros(()), 0
        for x, y in bucketed(train, batch, rng):
            loss = F.cross_entropy(net(x), y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach() * len(y)
            seen += len(y)
        if epoch % 4 == 3:
            net.eval()
            right = torch.zeros(())
            with torch.no_grad():
                for x, y in test_batches:
                    right += (net(x).argmax(1) == y).sum()
            accuracy = right.item() / sum(len(y) for _, y in test_batches)
            print(f"epoch {epoch}: loss {total.item() / seen:.3f} test accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
