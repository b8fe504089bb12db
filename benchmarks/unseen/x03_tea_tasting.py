#!/usr/bin/env python3
# Grades of tea from the taster's shorthand notes. Notes are short (flush, leaf) or long (leaf, liquor and finish),
# so batches come in two lengths.
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

WORDS = "bright brisk malty thin flat smoky wiry tippy coppery dull round pungent grassy baked sweet stalky".split()
GRADES = 5
LENGTHS = (12, 24)
PAD = 0


def write_notes(count, rng):
    weights = [rng.gauss(0, 1) for _ in WORDS]
    notes = []
    for _ in range(count):
        limit = LENGTHS[rng.random() < 0.4]
        length = rng.randint(limit // 2 + 1, limit)
        words = [rng.randrange(len(WORDS)) for _ in range(length)]
        score = sum(weights[w] for w in words) / math.sqrt(length)
        grade = min(GRADES - 1, max(0, int((score + 2) / 4 * GRADES)))
        notes.append(([w + 1 for w in words], grade))
    return notes


class BucketLoader:
    """Batches of equal padded length, in a new order every epoch; what does not fill a batch waits for the next one."""

    def __init__(self, notes, batch_size, seed=0):
        self.batch_size = batch_size
        self.rng = random.Random(seed)
        self.buckets = {length: [] for length in LENGTHS}
        for words, grade in notes:
            length = next(limit for limit in LENGTHS if len(words) <= limit)
            self.buckets[length].append((words + [PAD] * (length - len(words)), grade))

    def __len__(self):
        return sum(len(rows) // self.batch_size for rows in self.buckets.values())

    def __iter__(self):
        batches = []
        for rows in self.buckets.values():
            self.rng.shuffle(rows)
            for at in range(0, len(rows) - self.batch_size + 1, self.batch_size):
                batches.append(rows[at : at + self.batch_size])
        self.rng.shuffle(batches)
        for rows in batches:
            words, grades = zip(*rows)
            yield torch.tensor(words), torch.tensor(grades)


class Taster(nn.Module):
    def __init__(self, width=32, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(len(WORDS) + 1, width, padding_idx=PAD)
        self.positions = nn.Parameter(0.02 * torch.randn(max(LENGTHS), width))
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.grade = nn.Linear(width, GRADES)

    def forward(self, words):
        batch, length = words.shape
        present = words != PAD
        x = self.words(words) + self.positions[:length]
        for norm, qkv, mix in zip(self.norms, self.qkv, self.mix):
            q, k, v = qkv(norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(~present[:, None, None], -1e4)
            x = x + mix((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1))
        pooled = (x * present[..., None]).sum(1) / present.sum(1, keepdim=True)
        return self.grade(pooled)


@torch.no_grad()
def evaluate(model, notes, device, batch_size=64):
    model.eval()
    right = torch.zeros((), device=device)
    length = max(LENGTHS)
    for at in range(0, len(notes), batch_size):
        rows = notes[at : at + batch_size]
        missing = batch_size - len(rows)
        words = torch.tensor([w + [PAD] * (length - len(w)) for w, _ in rows] + [[1] * length] * missing)
        grades = torch.tensor([g for _, g in rows] + [-1] * missing)
        right += (model(words.to(device)).argmax(-1) == grades.to(device)).sum()
        torch_xla.sync()
    model.train()
    return right.item() / len(notes)


def main(epochs=14, batch_size=32, accumulate=2):
    rng = random.Random(8)
    torch.manual_seed(8)
    notes = write_notes(1400, rng)
    held_out, notes = notes[:200], notes[200:]
    device = xm.xla_device()
    model = Taster().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    loader = BucketLoader(notes, batch_size * accumulate)
    total = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 40) * (1 - 0.9 * s / total))
    smoothed = torch.zeros((), device=device)
    step, began = 0, time.time()
    for epoch in range(epochs):
        for words, grades in loader:
            words, grades = words.to(device), grades.to(device)
            optimizer.zero_grad()
            for part, target in zip(words.chunk(accumulate), grades.chunk(accumulate)):
                loss = F.cross_entropy(model(part), target) / accumulate
                loss.backward()
                smoothed += loss.detach()
            optimizer.step()
            schedule.step()
            step += 1
            torch_xla.sync()
            if step % 50 == 0:
                print(f"step {step:4d} loss {smoothed.item() / 50:.4f} lr {schedule.get_last_lr()[0]:.2e}")
                smoothed.zero_()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: {evaluate(model, held_out, device):.3f} of grades right")
    print(f"final {evaluate(model, held_out, device):.3f} in {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
