"""Segmenting P wave, QRS and T wave in synthetic ECG leads with a small 1-D U-Net, trained and evaluated on XLA."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Sampler, TensorDataset, ConcatDataset

LENGTHS = (512, 768)              # two recording devices
CLASSES = ["none", "P", "QRS", "T"]
SHAPES = {"P": (-0.18, 0.025, 0.2), "QRS": (0.0, 0.012, 1.2), "T": (0.28, 0.05, 0.35)}


def synth_ecg(n, length, seed, fs=250):
    rng = np.random.default_rng(seed)
    t = np.arange(length) / fs
    signals, labels = np.zeros((n, 1, length), np.float32), np.zeros((n, length), np.int64)
    for i in range(n):
        beat = rng.uniform(0.1, 0.5)
        while beat < t[-1]:
            for c, (at, width, amp) in enumerate(SHAPES.values(), start=1):
                mid, w, a = beat + at, width * rng.uniform(0.8, 1.3), amp * rng.uniform(0.7, 1.3)
                signals[i, 0] += a * np.exp(-0.5 * ((t - mid) / w) ** 2)
                labels[i, np.abs(t - mid) < 2 * w] = c
            beat += rng.uniform(0.65, 1.1)
        signals[i, 0] += 0.1 * np.sin(2 * np.pi * 0.3 * t + rng.uniform(0, 6)) + 0.08 * rng.standard_normal(length)
    return TensorDataset(torch.from_numpy(signals), torch.from_numpy(labels))


class SameLengthBatches(Sampler):
    """Every batch holds recordings of one device only, so the step is compiled once per length."""

    def __init__(self, sizes, batch, seed=0):
        self.sizes, self.batch, self.rng = sizes, batch, np.random.default_rng(seed)

    def __len__(self):
        return sum(s // self.batch for s in self.sizes)

    def __iter__(self):
        chunks, start = [], 0
        for s in self.sizes:
            order = start + self.rng.permutation(s)
            chunks += [order[i:i + self.batch].tolist() for i in range(0, s - self.batch + 1, self.batch)]
            start += s
        self.rng.shuffle(chunks)
        return iter(chunks)


def block(a, b):
    return nn.Sequential(nn.Conv1d(a, b, 7, padding=3), nn.GroupNorm(4, b), nn.SiLU())


class UNet1d(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.d1, self.d2, self.mid = block(1, w), block(w, 2 * w), block(2 * w, 4 * w)
        self.u2, self.u1 = block(4 * w + 2 * w, 2 * w), block(2 * w + w, w)
        self.head = nn.Conv1d(w, len(CLASSES), 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.avg_pool1d(a, 4))
        m = self.mid(F.avg_pool1d(b, 4))
        b = self.u2(torch.cat([m.repeat_interleave(4, dim=2), b], 1))
        a = self.u1(torch.cat([b.repeat_interleave(4, dim=2), a], 1))
        return self.head(a)


def evaluate(model, loader, device):
    model.eval()
    inter = torch.zeros(len(CLASSES), device=device)
    union = torch.zeros(len(CLASSES), device=device)
    with torch.no_grad():
        for x, y in loader:
            pred = F.one_hot(model(x).argmax(1), len(CLASSES)).bool()
            true = F.one_hot(y, len(CLASSES)).bool()
            inter += (pred & true).sum((0, 1))
            union += (pred | true).sum((0, 1))
    return (inter / union).tolist()


def main(epochs=3, batch=16, log_every=10):
    torch.manual_seed(0)
    device = torch_xla.device()
    parts = [synth_ecg(240, n, seed) for seed, n in enumerate(LENGTHS)]
    sampler = SameLengthBatches([len(p) for p in parts], batch)
    train = pl.MpDeviceLoader(DataLoader(ConcatDataset(parts), batch_sampler=sampler), device)
    test = pl.MpDeviceLoader(DataLoader(synth_ecg(80, LENGTHS[0], 99), batch_size=40), device)
    model = UNet1d().to(device)
    weights = torch.tensor([0.6, 1.5, 1.5, 1.0], device=device)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 8e-3, total_steps=epochs * len(sampler))
    step = 0
    for epoch in range(epochs):
        begin = time.time()
        model.train()
        for x, y in train:
            loss = F.cross_entropy(model(x), y, weight=weights)
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            xm.optimizer_step(opt)
            sched.step()
            step += 1
            if step % log_every == 0:      # printed by a closure, after the step has run
                xm.add_step_closure(lambda s, l: print(f"  step {s} loss {l.item():.3f}"), args=(step, loss))
        iou = evaluate(model, test, device)
        print(f"epoch {epoch} ({time.time() - begin:.1f} s): "
              + "  ".join(f"{c} {v:.3f}" for c, v in zip(CLASSES, iou)))


if __name__ == "__main__":
    main()
