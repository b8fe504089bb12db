"""Continues knitting instructions: Qwen2-style model, static cache, compiled decoding."""
import time

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

STITCHES = ["<pad>", "<row>", "k", "p", "yo", "k2tog", "ssk", "sl", "c4f", "c4b"] + [str(n) for n in range(1, 11)]
CODE = {s: i for i, s in enumerate(STITCHES)}
WIDTH = 32
NEW = 24


class PatternBook:
    """Rows of repeats: a motif of stitches with counts, knitted over and over."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def pick(self, low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=self.generator))

    def pattern(self, length: int) -> list[int]:
        motif = [CODE["<row>"]]
        for _ in range(self.pick(2, 5)):
            motif += [self.pick(2, 10), CODE[str(self.pick(1, 11))]]
        return (motif * (length // len(motif) + 1))[:length]

    def batch(self, rows: int, length: int) -> torch.Tensor:
        return torch.tensor([self.pattern(length) for _ in range(rows)])


def designer() -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(STITCHES), hidden_size=64, intermediate_size=128, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            pad_token_id=0, bos_token_id=None, eos_token_id=None,
        )
    )


def learn(model, book: PatternBook, steps: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(1, steps + 1):
        ids = book.batch(32, 40)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"[learn] step {step} loss {loss.item():.3f}")
    model.eval()


def pad_left(patterns: list[list[int]], width: int):
    ids = torch.zeros(len(patterns), width, dtype=torch.long)
    for row, pattern in zip(ids, patterns):
        row[width - len(pattern) :] = torch.tensor(pattern)
    return ids, (ids != 0).long()


class Continuation:
    def __init__(self, model):
        self.model = model
        self.model.forward = torch.compile(model.forward, dynamic=False)
        self.settings = GenerationConfig(
            max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, cache_implementation="static",
            pad_token_id=0, disable_compile=True,
        )

    @torch.no_grad()
    def __call__(self, patterns):
        ids, mask = pad_left(patterns, WIDTH)
        out = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=self.settings)
        return out[:, WIDTH:]


def main():
    torch.manual_seed(2)
    model = designer()
    learn(model, PatternBook(1), steps=200)

    knit = Continuation(model)
    book = PatternBook(55)
    right = total = 0
    begun = time.perf_counter()
    for number in range(1, 121):
        starts, wanted = [], []
        for _ in range(8):
            shown = book.pick(16, WIDTH + 1)
            pattern = book.pattern(shown + NEW)
            starts.append(pattern[:shown])
            wanted.append(pattern[shown:])
        answer = knit(starts)
        right += int((answer == torch.tensor(wanted)).sum())
        total += answer.numel()
        if number % 40 == 0:
            print(f"[knit] {number} sheets, {right / total:.2f} of the stitches right, {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
