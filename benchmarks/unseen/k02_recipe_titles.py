"""Titles for recipes: a tiny GPT-2 proposes them on xla; a script as a nightly batch job runs it."""
import dataclasses
import random
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

PAD, BOS, EOS = 0, 1, 2
FIRST_WORD = 10


@dataclasses.dataclass
class Settings:
    vocab: int = 300
    requests: int = 32
    batch: int = 8
    new_tokens: int = 6
    warmup_steps: int = 12
    seed: int = 5


class Pantry:
    """Ingredient lists of different lengths, as they come from the editors."""

    def __init__(self, settings):
        self.rng = random.Random(settings.seed)
        self.vocab = settings.vocab

    def draw(self):
        n = self.rng.randint(5, 34)
        return [BOS] + [self.rng.randrange(FIRST_WORD, self.vocab) for _ in range(n)]

    def requests(self, count):
        return [{"id": i, "tokens": self.draw()} for i in range(count)]


class BanWords(LogitsProcessor):
    """Words that may not appear in a title (brands, mostly), and none that the last token already is."""

    def __init__(self, banned, vocab, device):
        mask = torch.zeros(vocab)
        mask[list(banned)] = float("-inf")
        self.mask = mask.to(device)

    def __call__(self, input_ids, scores):
        scores = scores + self.mask
        last = input_ids[:, -1].tolist()
        for row, token in enumerate(last):
            if token >= FIRST_WORD:
                scores[row, token] = float("-inf")
        return scores


def left_pad(batch, device):
    width = max(len(r["tokens"]) for r in batch)
    ids = torch.full((len(batch), width), PAD)
    for i, r in enumerate(batch):
        ids[i, width - len(r["tokens"]):] = torch.tensor(r["tokens"])
    return {"input_ids": ids.to(device), "attention_mask": (ids != PAD).long().to(device)}


def adapt(model, pantry, settings, device):
    """A few steps of language modelling, so that the weights are no noise."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(settings.warmup_steps):
        rows = [(pantry.draw() * 8)[:32] for _ in range(settings.batch)]
        ids = torch.tensor(rows).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        losses.append(loss.detach())
    first, last = losses[0].item(), losses[-1].item()
    print(f"adapted: loss {first:.3f} -> {last:.3f}")


@torch.no_grad()
def title_all(model, requests, settings, device, processors):
    model.eval()
    titles = {}
    for start in range(0, len(requests), settings.batch):
        batch = requests[start:start + settings.batch]
        began = time.perf_counter()
        inputs = left_pad(batch, device)
        width = inputs["input_ids"].shape[1]
        out = model.generate(
            **inputs, max_new_tokens=settings.new_tokens, min_new_tokens=settings.new_tokens, do_sample=False,
            logits_processor=processors, pad_token_id=PAD, eos_token_id=EOS, cache_implementation="static",
        )
        for request, row in zip(batch, out[:, width:].cpu().tolist()):
            titles[request["id"]] = row
        print(f"batch {start // settings.batch}: {len(batch)} titles in {time.perf_counter() - began:.2f} s")
    return titles


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    device = xm.xla_device()
    config = GPT2Config(
        vocab_size=settings.vocab, n_positions=64, n_embd=48, n_layer=1, n_head=4, bos_token_id=BOS, eos_token_id=EOS,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).to(device)
    pantry = Pantry(settings)
    adapt(model, pantry, settings, device)
    processors = LogitsProcessorList([BanWords({11, 12, 40}, settings.vocab, device)])
    requests = pantry.requests(settings.requests)
    titles = title_all(model, requests, settings, device, processors)
    unique = len({tuple(t) for t in titles.values()})
    print(f"{len(titles)} titles, {unique} different ones")


if __name__ == "__main__":
    main()
