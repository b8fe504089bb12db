"""Keyword spotting on synthetic spoken commands of different length (log-mel like frames).

Commands are sorted into length buckets; within a bucket everything is padded to the bucket's
border, so each training step has one of three shapes.
"""
import random
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

BANDS, WORDS, BATCH = 20, 6, 32
BORDERS = (24, 40, 64)


def synthesise(count, rng):
    """Every word is a trajectory of two formants over its duration."""
    shapes = rng.uniform(3, BANDS - 3, size=(WORDS, 2, 3))
    clips = []
    for _ in range(count):
        word = int(rng.integers(WORDS))
        frames = int(rng.integers(14, BORDERS[-1] + 1))
        u = np.linspace(0, 1, frames)[:, None]
        clip = rng.normal(0, 0.5, (frames, BANDS))
        for knots in shapes[word]:
            pitch = np.interp(u[:, 0], (0, 0.5, 1), knots + rng.normal(0, 0.4, 3))[:, None]
            clip += 1.5 * np.exp(-0.5 * ((np.arange(BANDS) - pitch) / 1.2) ** 2)
        clips.append((torch.tensor(clip, dtype=torch.float32), word))
    return clips


class BucketBatches:
    """Yields full batches of one bucket each; what does not fill a batch waits for the next epoch."""

    def __init__(self, clips, seed):
        self.random = random.Random(seed)
        self.buckets = defaultdict(list)
        for clip in clips:
            border = next(b for b in BORDERS if len(clip[0]) <= b)
            self.buckets[border].append(clip)

    def __iter__(self):
        plan = []
        for border, clips in self.buckets.items():
            self.random.shuffle(clips)
            full = len(clips) // BATCH * BATCH
            plan += [(border, clips[i:i + BATCH]) for i in range(0, full, BATCH)]
        self.random.shuffle(plan)
        for border, clips in plan:
            x = torch.zeros(BATCH, border, BANDS)
            for row, (clip, _) in enumerate(clips):
                x[row, :len(clip)] = clip
            lengths = torch.tensor([len(c) for c, _ in clips])
            yield x, lengths, torch.tensor([w for _, w in clips])


class Spotter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv1 = nn.Conv1d(BANDS, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)
        self.attend = nn.Linear(width, 1)
        self.out = nn.Linear(width, WORDS)

    def forward(self, x, lengths):
        h = F.relu(self.conv1(x.transpose(1, 2)))
        h = F.relu(self.conv2(h)).transpose(1, 2)
        inside = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        score = self.attend(h)[..., 0].masked_fill(~inside, -1e9)
        return self.out((score.softmax(-1)[..., None] * h).sum(1))


def train_epoch(model, batches, opt, device):
    loss_sum = torch.zeros((), device=device)
    steps = 0
    for x, lengths, word in batches:
        x, lengths, word = x.to(device), lengths.to(device), word.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(x, lengths), word, label_smoothing=0.05)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        xm.optimizer_step(opt)
        loss_sum += loss.detach()
        steps += 1
        torch_xla.sync()
    return loss_sum.item() / steps


@torch.no_grad()
def accuracy(model, batches, device):
    right, seen = torch.zeros((), device=device), 0
    for x, lengths, word in batches:
        guess = model(x.to(device), lengths.to(device)).argmax(-1)
        right += (guess == word.to(device)).sum()
        seen += len(word)
        torch_xla.sync()
    return right.item() / seen


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    clips = synthesise(1500, rng)
    train, test = BucketBatches(clips[:1200], 1), BucketBatches(clips[1200:], 2)
    device = torch_xla.device()
    model = Spotter().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for epoch in range(6):
        if epoch == 4:
            for group in opt.param_groups:
                group["lr"] *= 0.2
        loss = train_epoch(model, train, opt, device)
        print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy(model, test, device):.3f}", flush=True)
    norms = {name: round(p.norm().item(), 2) for name, p in model.named_parameters() if p.dim() > 1}
    print("weights", norms)


if __name__ == "__main__":
    main()
