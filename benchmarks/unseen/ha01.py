"""Phoneme frame tagging on synthetic speech: log-mel-like features, convolutional tagger, SpecAugment."""
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

N_MELS, N_PHONES = 40, 24
BUCKETS = (112, 160)          # frames; every utterance is padded up to one of these


def synth_utterance(rng, templates):
    """A string of phones, each lasting 6..14 frames, rendered with its spectral template plus noise."""
    phones, frames = [], []
    target = rng.integers(70, 160)
    while len(phones) < target:
        p = int(rng.integers(1, N_PHONES))
        dur = int(rng.integers(6, 15))
        phones += [p] * dur
        frames.append(np.tile(templates[p], (dur, 1)))
    feats = np.concatenate(frames)[:target]
    feats = feats + 0.7 * rng.standard_normal(feats.shape)
    return feats.astype(np.float32), np.array(phones[:target], dtype=np.int64)


class BucketedCorpus:
    def __init__(self, n_utts, seed):
        rng = np.random.default_rng(seed)
        templates = np.random.default_rng(7).standard_normal((N_PHONES, N_MELS))
        self.buckets = {b: [] for b in BUCKETS}
        for _ in range(n_utts):
            x, y = synth_utterance(rng, templates)
            size = next(b for b in BUCKETS if b >= len(y))
            x = np.pad(x, ((0, size - len(y)), (0, 0)))
            y = np.pad(y, (0, size - len(y)), constant_values=-100)
            self.buckets[size].append((x, y))

    def batches(self, batch_size, shuffle):
        out = []
        for items in self.buckets.values():
            if shuffle:
                random.shuffle(items)
            for i in range(0, len(items) - batch_size + 1, batch_size):
                xs, ys = zip(*items[i:i + batch_size])
                out.append((torch.from_numpy(np.stack(xs)), torch.from_numpy(np.stack(ys))))
        if shuffle:
            random.shuffle(out)
        return out


class SpecAugment(nn.Module):
    def __init__(self, time_masks=2, freq_masks=1, max_t=20, max_f=8):
        super().__init__()
        self.time_masks, self.freq_masks, self.max_t, self.max_f = time_masks, freq_masks, max_t, max_f

    def forward(self, x):
        x = x.clone()
        for _ in range(self.time_masks):
            w = random.randint(1, self.max_t)
            t0 = random.randint(0, x.size(1) - w)
            x[:, t0:t0 + w, :] = 0.0
        for _ in range(self.freq_masks):
            w = random.randint(1, self.max_f)
            f0 = random.randint(0, x.size(2) - w)
            x[:, :, f0:f0 + w] = 0.0
        return x


class Tagger(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.augment = SpecAugment()
        self.front = nn.Sequential(nn.Conv1d(N_MELS, dim, 5, padding=2), nn.GELU(),
                                   nn.Conv1d(dim, dim, 5, padding=2), nn.GELU())
        self.context = nn.Conv1d(dim, dim, 9, padding=4, groups=8)
        self.head = nn.Linear(dim, N_PHONES)

    def forward(self, feats):
        x = self.augment(feats) if self.training else feats
        x = self.front(x.transpose(1, 2))
        x = x + F.gelu(self.context(x))
        return self.head(x.transpose(1, 2))


def frame_error(model, batches, device):
    model.eval()
    wrong = torch.zeros((), device=device)
    total = torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            pred = model(x).argmax(-1)
            valid = y != -100
            wrong += ((pred != y) & valid).sum()
            total += valid.sum()
            xm.mark_step()
    return (wrong / total).item()


def main(epochs=2, batch_size=16):
    random.seed(0)
    torch.manual_seed(0)
    device = xm.xla_device()
    train, dev = BucketedCorpus(100, 1), BucketedCorpus(80, 2)
    model = Tagger().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        model.train()
        t0, running = time.time(), torch.zeros((), device=device)
        batches = train.batches(batch_size, shuffle=True)
        for x, y in batches:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.detach()
            xm.mark_step()
        mean = running.item() / len(batches)
        fer = frame_error(model, dev.batches(batch_size, shuffle=False), device)
        print(f"epoch {epoch}: loss {mean:.3f}  dev frame error {fer:.3f}  ({time.time() - t0:.1f} s)")


if __name__ == "__main__":
    main()
