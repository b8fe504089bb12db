"""Find waves in ECG-like signals (background, P, QRS, T): a small U-Net, compiled; recordings sorted into two lengths."""
import random
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
random.seed(13)
LENGTHS = (512, 1024)  # two buckets: one graph each is what we want
CLASSES = ("none", "P", "QRS", "T")


def recording(length):
    """Beats at an irregular rate; each wave is a bump, the label says which."""
    t = torch.arange(length, dtype=torch.float32)
    signal, label = torch.zeros(length), torch.zeros(length, dtype=torch.long)
    beat = random.uniform(20, 60)
    while beat < length:
        for cls, shift, width, height in ((1, -28, 6.0, 0.18), (2, 0, 2.6, 1.1), (3, 42, 11.0, 0.32)):
            centre = beat + shift + random.gauss(0, 1.5)
            signal += height * random.uniform(0.7, 1.3) * torch.exp(-0.5 * ((t - centre) / width) ** 2)
            label[(t - centre).abs() < 1.8 * width] = cls
        beat += random.gauss(130, 14)
    drift = 0.15 * torch.sin(t / random.uniform(90, 200) + random.uniform(0, 6))
    return signal + drift + 0.05 * torch.randn(length), label


def make_batches(count, size):
    """Groups the recordings by bucket, so that a batch has one length; an incomplete batch is dropped."""
    buckets = defaultdict(list)
    for _ in range(count):
        wanted = random.randint(300, 1024)
        length = next(n for n in LENGTHS if n >= wanted)
        buckets[length].append(recording(length))
    batches = []
    for rows in buckets.values():
        for i in range(0, len(rows) - size + 1, size):
            x, y = zip(*rows[i : i + size])
            batches.append((torch.stack(x)[:, None], torch.stack(y)))
    return batches


def conv(n_in, n_out):
    return nn.Sequential(nn.Conv1d(n_in, n_out, 9, padding=4), nn.GroupNorm(4, n_out), nn.SiLU())


class UNet1d(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.enter = conv(1, width)
        self.down = conv(width, 2 * width)
        self.middle = conv(2 * width, 2 * width)
        self.up = conv(3 * width, width)
        self.head = nn.Conv1d(width, len(CLASSES), 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.middle(self.down(F.max_pool1d(a, 4)))
        b = F.interpolate(b, scale_factor=4.0, mode="nearest")
        return self.head(self.up(torch.cat([a, b], dim=1)))


def dice(counts):
    """Per class, from accumulated (intersection, predicted, true) counts."""
    return (2 * counts[0] / (counts[1] + counts[2]).clamp(min=1)).tolist()


@torch.no_grad()
def validate(model, batches):
    counts = torch.zeros(3, len(CLASSES))
    for x, y in batches:
        p = F.one_hot(model(x).argmax(dim=1), len(CLASSES)).float()
        q = F.one_hot(y, len(CLASSES)).float()
        counts += torch.stack([(p * q).sum((0, 1)), p.sum((0, 1)), q.sum((0, 1))])
    return dice(counts)


def main(epochs=7, size=32):
    train, valid = make_batches(1100, size), make_batches(200, size)
    sizes = [x.shape[-1] for x, _ in train]
    print(f"{len(train)} batches:", {n: sizes.count(n) for n in LENGTHS})
    net = UNet1d()
    model = torch.compile(net, dynamic=False)
    t0 = time.perf_counter()
    for length in LENGTHS:  # compile both lengths before the clock starts
        model(torch.zeros(size, 1, length)).sum().backward()
        net.zero_grad()
    print(f"warm-up {time.perf_counter() - t0:.1f} s")
    opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(train))
    weight = torch.tensor([0.5, 1.0, 1.0, 1.0])
    for epoch in range(epochs):
        t0, losses = time.perf_counter(), []
        random.shuffle(train)
        for x, y in train:
            loss = F.cross_entropy(model(x), y, weight=weight)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.detach())
        scores = validate(model, valid)  # once per epoch
        mean = torch.stack(losses).mean().item()
        print(f"epoch {epoch}: loss {mean:.4f}  dice " + "  ".join(f"{c} {s:.3f}" for c, s in zip(CLASSES, scores))
              + f"  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
