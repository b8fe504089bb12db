"""Split free-form postal addresses into fields (house, street, town, code) with a character tagger."""
import logging
import random
from collections import deque

import torch
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger(__name__)

ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789,-"
FIELDS = ["pad", "house", "street", "town", "code", "other"]
BUCKETS = (24, 40)
EVAL_LENGTH = 40


def make_address(rng):
    word = lambda a, b: "".join(rng.choice("aeiou" if i % 2 else "bcdfglmnprst") for i in range(rng.randint(a, b)))
    parts = [
        (str(rng.randint(1, 199)), "house"),
        (word(4, 8) + rng.choice([" st", " rd", "way"]), "street"),
        (word(3, 9), "town"),
        (f"{rng.randint(10, 99)}-{rng.randint(100, 999)}", "code"),
    ]
    if rng.random() < 0.3:
        parts[0], parts[1] = parts[1], parts[0]
    if rng.random() < 0.4:
        parts = parts[:2] + parts[3:]
    text, tags = "", []
    for part, field in parts:
        joint = rng.choice([", ", " "]) if text else ""
        text += joint + part
        tags += [FIELDS.index("other")] * len(joint) + [FIELDS.index(field)] * len(part)
    return [1 + ALPHABET.index(c) for c in text][: BUCKETS[-1]], tags[: BUCKETS[-1]]


class BucketedBatches:
    """Batches of equal padded length; two lengths, so two compiled steps."""

    def __init__(self, samples, batch_size, rng):
        self.samples, self.batch_size, self.rng = samples, batch_size, rng

    def __iter__(self):
        waiting = {length: [] for length in BUCKETS}
        order = list(range(len(self.samples)))
        self.rng.shuffle(order)
        for i in order:
            chars, tags = self.samples[i]
            length = next(b for b in BUCKETS if len(chars) <= b)
            waiting[length].append((chars, tags))
            if len(waiting[length]) == self.batch_size:
                yield pad(waiting[length], length)
                waiting[length] = []


def pad(samples, length):
    chars = torch.zeros(len(samples), length, dtype=torch.long)
    tags = torch.zeros(len(samples), length, dtype=torch.long)
    for row, (c, t) in enumerate(samples):
        chars[row, : len(c)] = torch.tensor(c)
        tags[row, : len(t)] = torch.tensor(t)
    return chars, tags


class Tagger(nn.Module):
    def __init__(self, width=48, layers=3):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET) + 1, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, 2 * width, 5, padding=2) for _ in range(layers))
        self.out = nn.Linear(width, len(FIELDS))
        self.dropout = nn.Dropout(0.1)

    def forward(self, chars):
        x = self.embed(chars).transpose(1, 2)
        for conv in self.convs:
            value, gate = conv(self.dropout(x)).chunk(2, dim=1)
            x = x + value * torch.sigmoid(gate)
        return self.out(x.transpose(1, 2))


def tag_loss(scores, tags):
    return nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=0)


def train(model, samples, device, epochs=6, accumulate=2, log_every=50):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 40))
    running = torch.zeros((), device=device)
    rng, step = random.Random(5), 0
    recent = deque(maxlen=4)
    for epoch in range(epochs):
        model.train()
        pending = {length: [] for length in BUCKETS}
        for chars, tags in BucketedBatches(samples, 32, rng):
            group = pending[chars.shape[1]]
            group.append((chars.to(device), tags.to(device)))
            if len(group) < accumulate:
                continue
            optimizer.zero_grad()
            for c, t in group:
                loss = tag_loss(model(c), t) / accumulate
                loss.backward()
                running += loss.detach()
            group.clear()
            xm.optimizer_step(optimizer)
            warmup.step()
            torch_xla.sync()
            step += 1
            if step % log_every == 0:
                recent.append(running.item() / log_every)
                running = torch.zeros((), device=device)
                logger.info("epoch %d step %d loss %.4f lr %.5f", epoch, step, recent[-1], warmup.get_last_lr()[0])
    return step, list(recent)


@torch.no_grad()
def accuracy(model, samples, device, batch_size=64):
    model.eval()
    right = torch.zeros((), device=device)
    total = torch.zeros((), device=device)
    for start in range(0, len(samples) - batch_size + 1, batch_size):
        chars, tags = pad(samples[start : start + batch_size], EVAL_LENGTH)
        chars, tags = chars.to(device), tags.to(device)
        guess = model(chars).argmax(-1)
        real = tags != 0
        right += ((guess == tags) & real).sum()
        total += real.sum()
        torch_xla.sync()
    return (right / total).item()


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    device = torch_xla.device()
    samples = [make_address(rng) for _ in range(3072)]
    held_out = [make_address(rng) for _ in range(512)]
    model = Tagger().to(device)
    logger.info("%d parameters on %s", sum(p.numel() for p in model.parameters()), xr.device_type())
    steps, recent = train(model, samples, device)
    score = accuracy(model, held_out, device)
    logger.info("%d steps, last losses %s, accuracy %.3f", steps, [round(r, 3) for r in recent], score)


if __name__ == "__main__":
    main()
