"""Fine-tune a small GPT-2 on a toy arithmetic language with PyTorch/XLA, then let it solve sums."""
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

CHARS = "0123456789+=;# "
PAD = CHARS.index("#")
CONTEXT, BATCH, STEPS, EVERY = 32, 16, 160, 40
encode = {c: i for i, c in enumerate(CHARS)}


def line(rng):
    """A few sums in a row, e.g. '3+4=7;12+9=21;'"""
    text = ""
    while len(text) < CONTEXT:
        a, b = rng.randrange(10), rng.randrange(10)
        text += f"{a}+{b}={a + b};"
    return text[:CONTEXT]


def batches(seed):
    rng = random.Random(seed)
    while True:
        yield torch.tensor([[encode[c] for c in line(rng)] for _ in range(BATCH)])


def build(device):
    config = GPT2Config(
        vocab_size=len(CHARS), n_positions=64, n_embd=64, n_layer=1, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=PAD, eos_token_id=PAD, attn_implementation="eager",
    )
    return GPT2LMHeadModel(config).to(device)


@torch.no_grad()
def complete(model, prompts, new_tokens, device):
    """Greedy continuation of equally long prompts."""
    ids = torch.tensor([[encode[c] for c in p] for p in prompts]).to(device)
    for _ in range(new_tokens):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        torch_xla.sync()
    return ["".join(CHARS[i] for i in row) for row in ids.cpu().tolist()]


def score(texts):
    good = total = 0
    for text in texts:
        for part in text.split(";")[:-1]:
            left, _, answer = part.partition("=")
            a, _, b = left.partition("+")
            if a.isdigit() and b.isdigit():
                total += 1
                good += answer == str(int(a) + int(b))
    return good, total


class Meter:
    """Mean loss, kept on the device until it is asked for."""

    def __init__(self, device):
        self.sum, self.n = torch.zeros((), device=device), 0

    def add(self, value):
        self.sum += value.detach()
        self.n += 1

    def pop(self):
        mean = self.sum.item() / max(self.n, 1)
        self.sum.zero_()
        self.n = 0
        return mean


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = build(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, 10, STEPS)
    meter = Meter(device)
    stream = batches(1)
    rng = random.Random(9)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    for step in range(1, STEPS + 1):
        ids = next(stream).to(device)
        out = model(input_ids=ids, labels=ids, use_cache=False)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        meter.add(out.loss)
        xm.mark_step()
        if step % EVERY == 0:
            print(f"step {step}: loss {meter.pop():.4f}, lr {schedule.get_last_lr()[0]:.5f}")

    model.eval()
    prompts = [line(rng)[:16] for _ in range(12)]
    texts = complete(model, prompts, 10, device)
    good, total = score(texts)
    for text in texts[:3]:
        print("  ", text)
    print(f"sums right: {good} of {total}")


if __name__ == "__main__":
    main()
