"""Next-ingredient recommendation: a GRU-free sequence model with sampled negatives."""
import os
import random
import tempfile
import time
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl

INGREDIENTS, CUISINES, LENGTH, NEGATIVES = 3000, 15, 12, 20


def cook_book(n, seed):
    rng = random.Random(seed)
    pantry = [[rng.randrange(1, INGREDIENTS) for _ in range(120)] for _ in range(CUISINES)]
    book = []
    for _ in range(n):
        shelf = pantry[rng.randrange(CUISINES)]
        book.append([shelf[int(len(shelf) * rng.random() ** 2)] for _ in range(LENGTH + 1)])
    return book


class RecipeSteps(Dataset):
    """(history, next, negatives); negatives follow the popularity of the ingredients."""

    def __init__(self, book, seed=0):
        self.book = book
        counts = Counter(i for recipe in book for i in recipe)
        self.items = sorted(counts)
        self.popularity = [counts[i] ** 0.75 for i in self.items]
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.book)

    def draw_negatives(self, recipe):
        taken, negatives = set(recipe), []
        while len(negatives) < NEGATIVES:
            candidate = self.rng.choices(self.items, weights=self.popularity)[0]
            if candidate not in taken:
                negatives.append(candidate)
        return negatives

    def __getitem__(self, i):
        recipe = self.book[i]
        return torch.tensor(recipe[:-1]), torch.tensor(recipe[-1]), torch.tensor(self.draw_negatives(recipe))


class NextIngredient(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.table = nn.Embedding(INGREDIENTS, width)
        nn.init.normal_(self.table.weight, std=0.05)
        self.position = nn.Parameter(torch.zeros(LENGTH, width))
        self.score = nn.Linear(width, 1)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def represent(self, history):
        x = self.table(history) + self.position
        weight = self.score(torch.tanh(x)).softmax(1)
        pooled = (weight * x).sum(1)
        return pooled + self.mix(pooled)

    def forward(self, history, target, negatives):
        query = self.represent(history)
        candidates = self.table(torch.cat([target[:, None], negatives], 1))
        return (candidates @ query[:, :, None]).squeeze(-1)


class Checkpointer:
    """Keeps the last few states of the run, so that a preempted job resumes close to where it was."""

    def __init__(self, folder, every, keep=2):
        self.folder, self.every, self.keep, self.files = folder, every, keep, []

    def maybe_save(self, step, model, optimizer):
        if step % self.every:
            return
        path = os.path.join(self.folder, f"step{step:06d}.pt")
        xm.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        self.files.append(path)
        while len(self.files) > self.keep:
            os.remove(self.files.pop(0))


@torch.no_grad()
def hit_rate(model, book, device, k=20, size=128):
    model.eval()
    hits = torch.zeros((), device=device)
    for lo in range(0, len(book) - size + 1, size):
        chunk = torch.tensor(book[lo:lo + size]).to(device)
        scores = model.represent(chunk[:, :-1]) @ model.table.weight.t()
        hits += (scores.topk(k, -1).indices == chunk[:, -1:]).any(-1).sum()
        torch_xla.sync()
    model.train()
    return hits.item() / (len(book) // size * size)


def main():
    random.seed(2)
    torch.manual_seed(2)
    device = xm.xla_device()
    dataset = RecipeSteps(cook_book(1600, 0))
    held_out = cook_book(384, 0)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
    model = NextIngredient().to(device)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=2e-2)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpointer(folder, every=2)
        for epoch in range(3):
            started = time.time()
            total = torch.zeros((), device=device)
            for history, target, negatives in pl.MpDeviceLoader(loader, device):
                scores = model(history, target, negatives)
                loss = F.cross_entropy(scores, torch.zeros_like(target))
                optimizer.zero_grad()
                loss.backward()
                xm.optimizer_step(optimizer)
                total += loss.detach()
                step += 1
                checkpoints.maybe_save(step, model, optimizer)
            torch_xla.sync()
            xm.master_print(f"epoch {epoch} loss {total.item() / len(loader):.4f} hit@20 "
                            f"{hit_rate(model, held_out, device):.3f} in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
