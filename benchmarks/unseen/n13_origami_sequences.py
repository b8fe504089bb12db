"""A small GRU-free sequence model of origami folding instructions: next fold from the folds so far (compiled, any length)."""
from __future__ import annotations

import argparse
import collections
import random

import torch
from torch import nn
from torch.nn import functional as F

FOLDS = ["valley", "mountain", "squash", "petal", "reverse", "sink", "rabbit-ear", "pleat", "turn-over", "rotate"]
BASES = {"bird": [0, 0, 8, 0, 0, 2, 3, 8, 3], "frog": [0, 0, 2, 8, 2, 3, 8, 3, 4], "boat": [0, 1, 8, 0, 6, 8, 6, 9],
         "crane": [0, 0, 8, 2, 3, 8, 3, 4, 4, 5]}


class Diagrams:
    def __init__(self, count: int, seed: int):
        rng = random.Random(seed)
        self.sequences = []
        for _ in range(count):
            folds = []
            for _ in range(rng.randint(2, 5)):
                base = rng.choice(list(BASES.values()))
                folds += [f if rng.random() > 0.08 else rng.randrange(len(FOLDS)) for f in base]
            self.sequences.append(folds)

    def batches(self, size: int, rng: random.Random):
        """Sequences of similar length together; a batch is cut to its shortest member, so nothing is padded."""
        order = sorted(range(len(self.sequences)), key=lambda i: (len(self.sequences[i]), rng.random()))
        groups = [order[i:i + size] for i in range(0, len(order) - size + 1, size)]
        rng.shuffle(groups)
        for group in groups:
            shortest = min(len(self.sequences[i]) for i in group)
            yield torch.tensor([self.sequences[i][:shortest] for i in group])


class CausalMixer(nn.Module):
    """Exponential averages at learned rates instead of attention: one triangular matrix per head."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.rate = nn.Parameter(torch.linspace(-1.0, 2.0, heads))
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        position = torch.arange(t, device=x.device)
        distance = (position[:, None] - position[None, :]).float()
        decay = torch.exp(-F.softplus(self.rate)[:, None, None] * distance.clamp(min=0))
        decay = decay.masked_fill(distance < 0, 0.0)
        decay = decay / decay.sum(-1, keepdim=True)
        v = self.value(x).view(b, t, self.heads, w // self.heads)
        return self.out(torch.einsum("hts,bshd->bthd", decay, v).reshape(b, t, w))


class FoldModel(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, depth: int = 2):
        super().__init__()
        self.embed = nn.Embedding(len(FOLDS), width)
        self.mixers = nn.ModuleList(CausalMixer(width, heads) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                                  for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))

    def forward(self, folds):
        x = self.embed(folds)
        for i, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps)):
            x = x + mixer(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return x @ self.embed.weight.t()


class Journal:
    """Keeps losses as tensors and reads them when a line is due."""

    def __init__(self, every: int):
        self.every, self.recent = every, collections.deque(maxlen=every)
        self.step = 0

    def note(self, loss: torch.Tensor) -> None:
        self.recent.append(loss)
        self.step += 1
        if self.step % self.every == 0:
            print(f"step {self.step}: loss {torch.stack(list(self.recent)).mean().item():.4f}", flush=True)


def accuracy(predict, diagrams: Diagrams) -> float:
    right, total = torch.zeros((), dtype=torch.long), 0
    with torch.no_grad():
        for folds in diagrams.batches(32, random.Random(0)):
            guess = predict(folds[:, :-1]).argmax(-1)
            right += (guess == folds[:, 1:]).sum()
            total += guess.numel()
    return right.item() / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(3)
    rng = random.Random(3)
    train, test = Diagrams(640, seed=1), Diagrams(96, seed=2)
    model = FoldModel()
    predict = torch.compile(model, dynamic=True, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=args.epochs * 20 // args.accumulate + 1)
    journal = Journal(every=100)
    for epoch in range(args.epochs):
        for number, folds in enumerate(train.batches(32, rng), 1):
            logits = predict(folds[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), folds[:, 1:].flatten())
            (loss / args.accumulate).backward()
            journal.note(loss.detach())
            if number % args.accumulate == 0:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        if epoch % 10 == 9:
            print(f"epoch {epoch}: accuracy {accuracy(predict, test):.3f}")


if __name__ == "__main__":
    main()
