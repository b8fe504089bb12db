"""Next-note prediction for synthetic melodies with a small gated recurrent cell, written by hand.

A melody is a Markov walk over scale degrees with a phrase structure; the model is trained with
teacher forcing, and gradient statistics per layer are kept for later inspection.
"""
import collections
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

NOTES, LENGTH, BATCH = 16, 7, 32
EPOCHS, BATCHES = 4, 6


def compose(count, seed):
    """Melodies: steps of the walk depend on the position within an 8-note phrase."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(-3, 4, size=(8,))
    out = np.zeros((count, LENGTH + 1), np.int64)
    out[:, 0] = rng.integers(0, NOTES, count)
    for t in range(LENGTH):
        noise = rng.choice([-1, 0, 0, 0, 0, 1], size=count)
        out[:, t + 1] = (out[:, t] + steps[t % 8] + noise) % NOTES
    return torch.from_numpy(out)


class MinimalGate(nn.Module):
    """One gate decides how much of the old state stays."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(2 * width, width)
        self.candidate = nn.Linear(2 * width, width)

    def forward(self, x, h):
        z = torch.sigmoid(self.gate(torch.cat([x, h], -1)))
        return z * h + (1 - z) * torch.tanh(self.candidate(torch.cat([x, h], -1)))


class MelodyModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(NOTES, width)
        self.cell = MinimalGate(width)
        self.head = nn.Linear(width, NOTES)
        self.width = width

    def forward(self, notes):
        x = self.embed(notes)
        h = x.new_zeros(x.shape[0], self.width)
        states = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            states.append(h)
        return self.head(torch.stack(states, 1))


class GradientJournal:
    """Keeps the gradient norm of every parameter and warns about exploding ones."""

    def __init__(self, model, limit=50.0):
        self.named = list(model.named_parameters())
        self.limit = limit
        self.history = collections.defaultdict(list)

    def note(self):
        for name, p in self.named:
            norm = p.grad.norm().item()
            if not math.isfinite(norm) or norm > self.limit:
                print("warning: gradient of", name, "is", norm)
            self.history[name].append(norm)

    def summary(self):
        return ", ".join(f"{k} {np.mean(v[-BATCHES:]):.3f}" for k, v in self.history.items() if "weight" in k)


def run_epoch(model, batches, opt=None, journal=None):
    total = 0.0
    for notes in batches:
        logits = model(notes[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, NOTES), notes[:, 1:].reshape(-1))
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            if journal is not None:
                journal.note()
            xm.optimizer_step(opt)
        total = total + loss.detach()
        torch_xla.sync()
    return (total / len(batches)).item()


def main():
    torch.manual_seed(2)
    device = torch_xla.device()
    train = compose(BATCH * BATCHES, 2).to(device).split(BATCH)
    held_out = compose(BATCH * 2, 2)[-BATCH * 2:].to(device).split(BATCH)
    model = MelodyModel().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.8, momentum=0.9)
    journal = GradientJournal(model)
    for epoch in range(EPOCHS):
        loss = run_epoch(model, train, opt, journal)
        with torch.no_grad():
            test = run_epoch(model, held_out)
        print(f"epoch {epoch}: train {loss:.4f} held out {test:.4f} | {journal.summary()}", flush=True)


if __name__ == "__main__":
    main()
