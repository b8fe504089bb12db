"""Self-supervised embeddings of bird calls, with a queue of negatives (MoCo style)."""
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

SPECIES, BANDS, FRAMES = 12, 16, 24
BATCH, QUEUE, STEPS = 16, 384, 200
EVAL_EVERY = 50


class Calls:
    """Spectrograms of synthetic calls: a chirp per species, with noise and shifts."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.species = rng.integers(0, SPECIES, n)
        t, f = np.arange(FRAMES), np.arange(BANDS)[:, None]
        slope, start = np.linspace(-0.4, 0.5, SPECIES), np.linspace(2, 12, SPECIES)
        centre = start[self.species, None] + slope[self.species, None] * t
        spectra = np.exp(-((f[None] - centre[:, None]) ** 2) / 3.0)
        self.spectra = torch.from_numpy((spectra + 0.1 * rng.random(spectra.shape)).astype(np.float32))
        self.rng = rng

    def pairs(self, k):
        index = self.rng.integers(0, len(self.spectra), k)
        x = self.spectra[index]
        return self.view(x), self.view(x)

    def view(self, x):
        gain = torch.from_numpy(self.rng.uniform(0.6, 1.4, (len(x), 1, 1)).astype(np.float32))
        return x * gain + 0.1 * torch.from_numpy(self.rng.standard_normal(x.shape).astype(np.float32))


class Encoder(nn.Module):
    def __init__(self, width=32, out=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return F.normalize(self.head(self.body(x).mean(-1)), dim=-1)


class MomentumContrast(nn.Module):
    def __init__(self, momentum=0.98, temperature=0.2):
        super().__init__()
        self.query, self.key = Encoder(), Encoder()
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature
        self.negatives = None

    @torch.no_grad()
    def update_key(self):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.lerp_(q, 1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        if self.negatives is None:
            self.negatives = keys
        else:
            self.negatives = torch.cat([self.negatives, keys])[-QUEUE:]

    def forward(self, a, b):
        q = self.query(a)
        with torch.no_grad():
            self.update_key()
            k = self.key(b)
        positive = (q * k).sum(-1, keepdim=True)
        pool = k if self.negatives is None else self.negatives
        logits = torch.cat([positive, q @ pool.t()], 1) / self.temperature
        labels = torch.zeros(len(q), dtype=torch.long, device=q.device)
        self.enqueue(k)
        return F.cross_entropy(logits, labels)


@torch.no_grad()
def neighbour_accuracy(model, calls, device):
    """Share of calls whose nearest neighbour is of the same species."""
    model.eval()
    features = []
    for chunk in calls.spectra.split(64):
        features.append(model.query(chunk.to(device)))
        torch_xla.sync()
    model.train()
    features = torch.cat(features)
    similarity = features @ features.t()
    similarity.fill_diagonal_(-1)
    nearest = similarity.argmax(1).cpu().numpy()
    return float((calls.species[nearest] == calls.species).mean())


class LossWindow:
    """Mean loss over the last steps, for the log line."""

    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)

    def mean(self):
        return torch.stack(self.losses[-40:]).mean().item()


def main():
    torch.manual_seed(4)
    device = xm.xla_device()
    train_calls, test_calls = Calls(2048, 0), Calls(256, 1)
    model = MomentumContrast().to(device)
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9)
    window, started = LossWindow(), time.time()
    for step in range(1, STEPS + 1):
        a, b = (v.to(device) for v in train_calls.pairs(BATCH))
        loss = model(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.add(loss.detach())
        torch_xla.sync()
        if step % EVAL_EVERY == 0:
            accuracy = neighbour_accuracy(model, test_calls, device)
            print(f"step {step} loss {window.mean():.3f} 1-nn {accuracy:.3f} {time.time() - started:.1f} s", flush=True)
    xm.save(model.query.state_dict(), "/tmp/birdsong_encoder.pt")


if __name__ == "__main__":
    main()
