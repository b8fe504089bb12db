"""Read Morse code from noisy receiver envelopes: bucketed recordings, CTC, accumulated gradients."""
import dataclasses
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

MORSE = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --..").split()))
ALPHABET = "_ETAONIRS"
BUCKETS = {4: 192, 6: 288}
HOP = 4


@dataclasses.dataclass
class Recording:
    envelope: np.ndarray
    text: str


def key(text, rng):
    units = []
    for ch in text:
        for mark in MORSE[ch]:
            units += [1] * (1 if mark == "." else 3) + [0]
        units += [0, 0]
    speed = int(rng.integers(2, 4))
    signal = np.repeat(np.array(units, np.float32), speed)
    return signal * rng.uniform(0.7, 1.3)


def record(rng, letters):
    text = "".join(rng.choice(list(ALPHABET[1:]), letters))
    clean = key(text, rng)[: BUCKETS[letters]]
    out = np.zeros(BUCKETS[letters], np.float32)
    out[: len(clean)] = clean
    return Recording(out + 0.15 * rng.normal(size=len(out)).astype(np.float32), text)


class BucketSampler:
    """Batches of one length each, in random order; incomplete ones are left out."""

    def __init__(self, recordings, batch, seed):
        self.groups = {}
        for r in recordings:
            self.groups.setdefault(len(r.text), []).append(r)
        self.batch, self.rng = batch, random.Random(seed)

    def __iter__(self):
        plan = []
        for items in self.groups.values():
            self.rng.shuffle(items)
            plan += [items[i:i + self.batch] for i in range(0, len(items) - self.batch + 1, self.batch)]
        self.rng.shuffle(plan)
        return iter(plan)


def collate(items):
    x = torch.from_numpy(np.stack([r.envelope for r in items]))
    y = torch.tensor([[ALPHABET.index(c) for c in r.text] for r in items])
    return x, y


class Reader(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.patch = nn.Linear(HOP * 12, d)
        self.mix = nn.Linear(d * 5, d)
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, len(ALPHABET))

    def forward(self, x):
        frames = F.pad(x, (HOP * 5, HOP * 6)).unfold(1, HOP * 12, HOP)
        h = torch.relu(self.patch(frames))
        near = F.pad(h, (0, 0, 2, 2)).unfold(1, 5, 1).flatten(2)
        h = self.norm(h + torch.relu(self.mix(near)))
        return self.out(h).log_softmax(-1)


def ctc(logp, y):
    n, t, _ = logp.shape
    return F.ctc_loss(logp.transpose(0, 1), y, torch.full((n,), t), torch.full((n,), y.shape[1]))


def greedy(logp):
    best = logp.argmax(-1).cpu().numpy()
    texts = []
    for row in best:
        keep = row[np.insert(row[1:] != row[:-1], 0, True)]
        texts.append("".join(ALPHABET[k] for k in keep if k))
    return texts


@torch.no_grad()
def exact_match(model, recordings, device):
    model.eval()
    x, _ = collate(recordings)
    texts = greedy(model(x.to(device)))
    model.train()
    for r, t in list(zip(recordings, texts))[:2]:
        print(f"      {r.text} -> {t}")
    return sum(r.text == t for r, t in zip(recordings, texts)) / len(recordings)


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    rng = np.random.default_rng(3)
    train = [record(rng, n) for n in rng.choice(list(BUCKETS), 768)]
    held = [record(rng, 6) for _ in range(96)]
    model = Reader().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sampler, accumulate, log_every = BucketSampler(train, 16, 1), 2, 50
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    running = torch.zeros((), device=device)
    xm.mark_step()
    micro, logged, start = 0, 0.0, time.time()
    for epoch in range(8):
        for items in sampler:
            x, y = (t.to(device) for t in collate(items))
            loss = ctc(model(x), y)
            (loss / accumulate).backward()
            running += loss.detach()
            xm.mark_step()
            micro += 1
            if micro % accumulate == 0:
                opt.step()
                opt.zero_grad(set_to_none=False)
                xm.mark_step()
            if micro % log_every == 0:
                total = running.item()
                print(f"{micro:4d} loss {(total - logged) / log_every:.3f} {time.time() - start:.1f}s")
                logged = total
        if epoch % 4 == 3:
            print(f"epoch {epoch} exact {exact_match(model, held, device):.2f}")


if __name__ == "__main__":
    main()
