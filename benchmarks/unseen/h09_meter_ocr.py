"""Reads the digits of water meters: a convolutional column encoder with CTC, and the character error rate of each step."""
import random
from collections import defaultdict, deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH, BLANK, LONGEST = 16, 112, 0, 12
SEGMENTS = {  # seven-segment digits: top, upper left, upper right, middle, lower left, lower right, bottom
    0: "1110111", 1: "0010010", 2: "1011101", 3: "1011011", 4: "0111010",
    5: "1101011", 6: "1101111", 7: "1010010", 8: "1111111", 9: "1111011"}


def glyph(digit):
    g = torch.zeros(12, 7)
    top, ul, ur, mid, ll, lr, low = (c == "1" for c in SEGMENTS[digit])
    g[0:2, 1:6] += top
    g[1:6, 0:2] += ul
    g[1:6, 5:7] += ur
    g[5:7, 1:6] += mid
    g[6:11, 0:2] += ll
    g[6:11, 5:7] += lr
    g[10:12, 1:6] += low
    return g.clamp(max=1.0)


class Meters(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        glyphs = [glyph(d) for d in range(10)]
        self.rows = []
        for _ in range(n):
            digits = [rng.randrange(10) for _ in range(rng.randint(9, LONGEST))]
            image = 0.15 * torch.randn(HEIGHT, WIDTH)
            x = rng.randint(0, 3)
            for d in digits:
                y = rng.randint(0, 3)
                image[y:y + 12, x:x + 7] += glyphs[d]
                x += rng.choice((8, 9))
            target = torch.zeros(LONGEST, dtype=torch.long)
            target[:len(digits)] = torch.tensor(digits) + 1
            self.rows.append((image, target, len(digits)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class ColumnNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, stride=(2, 1)), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU())
        self.mix = nn.Sequential(nn.Conv1d(32 * HEIGHT // 4, dim, 5, padding=2), nn.ReLU(), nn.Conv1d(dim, dim, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(dim, 11)

    def forward(self, image):
        h = self.conv(image.unsqueeze(1)).flatten(1, 2)
        return self.head(self.mix(h).transpose(1, 2)).log_softmax(-1)


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def prefix_beam(frames, width):
    """Most likely text under CTC: prefixes with the probability of ending in a blank, and in a digit."""
    beams = {(): (1.0, 0.0)}
    for row in frames:
        grown = defaultdict(lambda: [0.0, 0.0])
        for text, (blank, digit) in beams.items():
            grown[text][0] += (blank + digit) * row[BLANK]
            if text:
                grown[text][1] += digit * row[text[-1]]
            for symbol in range(1, 11):
                before = blank if text and symbol == text[-1] else blank + digit
                grown[text + (symbol,)][1] += before * row[symbol]
        beams = dict(sorted(grown.items(), key=lambda kv: -sum(kv[1]))[:width])
    return max(beams, key=lambda text: sum(beams[text]))


class ErrorRate:
    """Running character error rate: as reported to the plant."""

    def __init__(self, window=20, beam=4):
        self.values = deque(maxlen=window)
        self.beam = beam

    def decode(self, log_probs):
        rows = log_probs.exp().cpu().tolist()
        return [prefix_beam(frames, self.beam) for frames in rows]

    def update(self, log_probs, targets, lengths):
        wrong = total = 0
        wanted = zip(targets.tolist(), lengths.tolist())
        for text, (target, n) in zip(self.decode(log_probs), wanted):
            wrong += levenshtein(text, target[:n])
            total += n
        self.values.append(wrong / total)

    @property
    def value(self):
        return sum(self.values) / len(self.values)


class Reader:
    def __init__(self, device):
        self.device = device
        self.net = ColumnNet().to(device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.rate = ErrorRate()

    def step(self, images, targets, lengths):
        log_probs = self.net(images)
        frames = torch.full((images.shape[0],), log_probs.shape[1])
        loss = F.ctc_loss(log_probs.transpose(0, 1), targets, frames, lengths, blank=BLANK)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.rate.update(log_probs.detach(), targets, lengths)
        return loss.detach()


def main(epochs=3):
    torch.manual_seed(12)
    device = torch_xla.device()
    reader = Reader(device)
    loader = DataLoader(Meters(1024, 12), batch_size=64, shuffle=True, drop_last=True)
    loader = pl.MpDeviceLoader(loader, device)
    for epoch in range(epochs):
        losses = [reader.step(*batch) for batch in loader]
        mean = torch.stack(losses).mean().item()
        print(f"epoch {epoch} loss {mean:.3f} character error rate {reader.rate.value:.3f}")


if __name__ == "__main__":
    main()
