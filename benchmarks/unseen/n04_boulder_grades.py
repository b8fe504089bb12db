"""Grade boulder problems from their sequences of holds. Accelerate drives the loop; on a TPU VM or any other XLA device."""
import logging
import math
import random
import sys

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

LENGTHS = (12, 24)
HOLDS = ("crimp", "sloper", "pinch", "jug", "pocket", "volume")
GRADES = 8


class Problems(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            grade = rng.randrange(GRADES)
            moves = rng.randint(6, LENGTHS[-1])
            holds = [(rng.choices(range(len(HOLDS)), weights=[1 + grade, 1 + grade, 2, 9 - grade, 2, 2])[0],
                      rng.gauss(0.3 + 0.08 * grade, 0.1), rng.gauss(0.4, 0.2)) for _ in range(moves)]
            self.items.append((holds, grade))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def bucket_of(self, i):
        return next(b for b, limit in enumerate(LENGTHS) if len(self.items[i][0]) <= limit)


class BucketBatches(Sampler):
    """Full batches from one bucket at a time; a bucket's remainder is left for the next epoch's shuffle."""

    def __init__(self, problems, batch_size, seed=0):
        self.buckets = [[] for _ in LENGTHS]
        for i in range(len(problems)):
            self.buckets[problems.bucket_of(i)].append(i)
        self.batch_size, self.rng = batch_size, random.Random(seed)

    def __len__(self):
        return sum(len(b) // self.batch_size for b in self.buckets)

    def __iter__(self):
        batches = []
        for bucket in self.buckets:
            order = self.rng.sample(bucket, len(bucket))
            batches += [order[i:i + self.batch_size] for i in range(0, len(order) - self.batch_size + 1, self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)


def collate(items):
    longest = max(len(holds) for holds, _ in items)
    width = next(limit for limit in LENGTHS if longest <= limit)
    kinds = torch.zeros(len(items), width, dtype=torch.long)
    reach = torch.zeros(len(items), width, 2)
    mask = torch.zeros(len(items), width)
    for row, (holds, _) in enumerate(items):
        kinds[row, :len(holds)] = torch.tensor([h[0] for h in holds])
        reach[row, :len(holds)] = torch.tensor([h[1:] for h in holds])
        mask[row, :len(holds)] = 1.0
    return {"kinds": kinds, "reach": reach, "mask": mask, "grade": torch.tensor([g for _, g in items])}


class Setter(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.kind = nn.Embedding(len(HOLDS), width)
        self.reach = nn.Linear(2, width)
        self.mix = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True) for _ in range(1))
        self.head = nn.Linear(width, 1)

    def forward(self, kinds, reach, mask):
        h = self.kind(kinds) + self.reach(reach)
        for layer in self.mix:
            h = layer(h, src_key_padding_mask=mask == 0)
        pooled = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(pooled).squeeze(-1)


def evaluate(accelerator, model, loader):
    model.eval()
    off, seen = [], []
    with torch.no_grad():
        for batch in loader:
            guess = model(batch["kinds"], batch["reach"], batch["mask"])
            off.append((guess - batch["grade"]).abs().sum())
            seen.append(guess.shape[0])
    model.train()
    return torch.stack(off).sum().item() / sum(seen)


def main():
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    log = logging.getLogger("boulder")
    set_seed(7)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    train_set, held_out = Problems(1200, seed=1), Problems(192, seed=2)
    train_loader = DataLoader(train_set, batch_sampler=BucketBatches(train_set, 24), collate_fn=collate)
    test_loader = DataLoader(held_out, batch_sampler=BucketBatches(held_out, 16), collate_fn=collate)
    model = Setter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    epochs = 4
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(1.0, s / 110))))
    model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, test_loader, schedule)

    step, running = 0, torch.zeros((), device=accelerator.device)
    for epoch in range(epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                guess = model(batch["kinds"], batch["reach"], batch["mask"])
                loss = nn.functional.smooth_l1_loss(guess, batch["grade"].float())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            running += loss.detach()
            step += 1
            if step % 50 == 0:
                xm.mark_step()
                log.info("step %d: loss %.3f at rate %.1e", step, running.item() / 50, schedule.get_last_lr()[0])
                running.zero_()
        if epoch % 2 == 1:
            log.info("epoch %d: off by %.2f grades", epoch, evaluate(accelerator, model, test_loader))


if __name__ == "__main__":
    main()
