"""A character-level GPT-2 from a config learns to write dates; then it writes some and we count the valid ones."""
import datetime
import random
import re
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

ALPHABET = "\n ,.abcdefghijklmnopqrstuvwxyz0123456789"
STOI = {c: i for i, c in enumerate(ALPHABET)}
END = STOI["\n"]
CONTEXT = 26
FORM = re.compile(r"^(\d{1,2}) ([a-z]+) (\d{4})$")
MONTHS = [datetime.date(2000, m, 1).strftime("%b").lower() for m in range(1, 13)]


def write_date(rng):
    day = datetime.date(1990, 1, 1) + datetime.timedelta(days=rng.randrange(12000))
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}\n"


def encode(text):
    return [STOI[c] for c in text]


def make_batch(rng, size):
    """Dates back to back, cut to the context: every row has the same length."""
    rows = []
    for _ in range(size):
        text = "\n"
        while len(text) < CONTEXT:
            text += write_date(rng)
        rows.append(encode(text[:CONTEXT]))
    return torch.tensor(rows)


def is_date(text):
    match = FORM.match(text)
    if not match:
        return False
    day, month, _ = match.groups()
    return month in MONTHS and 1 <= int(day) <= 31


class Writer:
    def __init__(self, device, lr=4e-3):
        config = GPT2Config(
            vocab_size=len(ALPHABET), n_positions=CONTEXT, n_embd=48, n_layer=1, n_head=4,
            bos_token_id=END, eos_token_id=END, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
        self.device = device
        self.model = GPT2LMHeadModel(config).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.05, total_iters=90)

    def train(self, rng, steps, batch_size=32, report=30):
        self.model.train()
        total = torch.zeros((), device=self.device)
        for step in range(1, steps + 1):
            ids = make_batch(rng, batch_size).to(self.device)
            loss = self.model(input_ids=ids, labels=ids, use_cache=False).loss
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
            xm.mark_step()
            if step % report == 0:
                print(f"step {step}: loss {total.item() / report:.4f}")
                total.zero_()

    @torch.no_grad()
    def write(self, count, temperature=0.5, longest=13):
        """Samples `count` lines at once, a character at a time, until all have ended."""
        self.model.eval()
        cache = DynamicCache()
        token = torch.full((count, 1), END, device=self.device)
        ended = torch.zeros(count, 1, dtype=torch.bool, device=self.device)
        written = []
        for _ in range(longest):
            out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            probabilities = torch.softmax(out.logits[:, -1] / temperature, -1)
            token = torch.multinomial(probabilities, 1).masked_fill(ended, END)
            ended |= token == END
            written.append(token)
            xm.mark_step()
            if ended.all().item():
                break
        lines = torch.cat(written, 1).cpu().tolist()
        return ["".join(ALPHABET[i] for i in row).split("\n")[0] for row in lines]


def main():
    torch.manual_seed(0)
    rng = random.Random(3)
    writer = Writer(torch.device("xla"))
    start = time.time()
    writer.train(rng, steps=90)
    print(f"trained in {time.time() - start:.1f} s")

    start = time.time()
    lines = writer.write(32)
    valid = [line for line in lines if is_date(line)]
    for line in lines[:4]:
        print("  ", line)
    print(f"{len(valid)} of {len(lines)} lines are dates, written in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
