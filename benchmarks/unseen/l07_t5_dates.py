"""Teaches a small T5 to normalize dates, in a loop of its own on the XLA device, with transformers' schedule."""
import argparse
import logging
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup

log = logging.getLogger("dates")
MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"]


class Dates(Dataset):
    """Character ids of "14 march 2021" and of "2021-03-14"."""

    def __init__(self, count, seed, source_length=20, target_length=12):
        rng = random.Random(seed)
        self.source_length, self.target_length = source_length, target_length
        self.pairs = []
        for _ in range(count):
            day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1950, 2030)
            self.pairs.append((f"{day} {MONTHS[month - 1]} {year}", f"{year}-{month:02d}-{day:02d}"))

    def encode(self, text, length, pad):
        ids = [min(ord(c) - 30, 94) for c in text] + [1]
        return torch.tensor(ids + [pad] * (length - len(ids)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        source, target = self.pairs[index]
        ids = self.encode(source, self.source_length, 0)
        return ids, (ids != 0).long(), self.encode(target, self.target_length, -100)


class Meter:
    def __init__(self):
        self.history = []

    def add(self, loss):
        self.history.append(loss)

    def mean(self):
        return sum(x.item() for x in self.history[-10:]) / len(self.history[-10:])


def build():
    config = T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    return T5ForConditionalGeneration(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    device = torch_xla.device()
    model = build().to(device)
    loader = DataLoader(Dates(168, 2), args.batch, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = get_linear_schedule_with_warmup(optimizer, 4, args.epochs * len(loader))
    meter = Meter()
    step = 0
    for epoch in range(args.epochs):
        for ids, mask, labels in loader:
            output = model(input_ids=ids.to(device), attention_mask=mask.to(device), labels=labels.to(device))
            output.loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not torch.isfinite(norm):
                log.warning("step %d skipped", step)
                optimizer.zero_grad()
                continue
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            xm.mark_step()
            meter.add(output.loss.detach())
            step += 1
        log.info("epoch %d step %d loss %.3f", epoch, step, meter.mean())


if __name__ == "__main__":
    main()
