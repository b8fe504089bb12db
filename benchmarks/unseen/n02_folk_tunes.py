#!/usr/bin/env python
"""Continue folk tunes (ABC-like tokens): fit a little GPT-2 for a moment, then sample endings with `generate`."""
import argparse
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

NOTES = [p + o for o in ("", "'") for p in "CDEFGAB"]
LENGTHS = ["", "2", "/2"]
SPECIAL = ["<pad>", "<bos>", "<eos>", "|"]
VOCAB = SPECIAL + [n + l for n in NOTES for l in LENGTHS]
BAR = VOCAB.index("|")
PAD, BOS, EOS = 0, 1, 2


def make_tune(generator, bars):
    """A random walk on the scale, four notes a bar."""
    degree = int(torch.randint(0, 7, (1,), generator=generator))
    tune = [BOS]
    for _ in range(bars):
        for _ in range(4):
            degree = (degree + int(torch.randint(-2, 3, (1,), generator=generator))) % len(NOTES)
            tune.append(len(SPECIAL) + degree * len(LENGTHS) + int(torch.randint(0, 3, (1,), generator=generator)))
        tune.append(BAR)
    return tune + [EOS]


class NoStutter(LogitsProcessor):
    """Players complain when a phrase of three tokens comes back within a bar's distance: forbid the third token."""

    def __init__(self, window=12):
        self.window = window

    def __call__(self, input_ids, scores):
        for row, ids in enumerate(input_ids.tolist()):
            recent = ids[-self.window:]
            pair = tuple(recent[-2:])
            for a, b, c in zip(recent, recent[1:], recent[2:]):
                if (a, b) == pair and c != BAR:
                    scores[row, c] = float("-inf")
        return scores


class MetreBias(LogitsProcessor):
    """Bars have four notes. The bias is made on the device from the tokens since the prompt; nothing is read."""

    def __init__(self, strength=2.0):
        self.strength = strength

    def __call__(self, input_ids, scores):
        since = (input_ids[:, -4:] != BAR).all(dim=1)
        bias = torch.zeros_like(scores)
        bias[:, BAR] = torch.where(since, self.strength, -self.strength)
        return scores + bias


def fit(model, tunes, device, steps, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = torch.tensor(tunes)
    for step in range(steps):
        rows = torch.randint(0, len(data), (batch,))
        ids = data[rows].to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        xm.mark_step()
        if step % 15 == 14:
            print(f"fit step {step + 1}: loss {loss.item():.3f}")


@torch.no_grad()
def continue_tunes(model, openings, device, settings):
    """openings: lists of token lists, all of one length. Returns the continued tunes as lists."""
    processors = LogitsProcessorList([NoStutter(), MetreBias()])
    finished = []
    for group in openings:
        prompt = torch.tensor(group, device=device)
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings,
                             logits_processor=processors)
        finished.extend(out.cpu().tolist())
    return finished


def to_abc(ids):
    return " ".join(VOCAB[i] for i in ids if i > EOS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fit-steps", type=int, default=30)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--new-tokens", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(5)
    device = torch.device("xla")
    config = GPT2Config(vocab_size=len(VOCAB), n_positions=96, n_embd=32, n_layer=1, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)
    model = GPT2LMHeadModel(config).to(device)

    tunes = [make_tune(generator, bars=7) for _ in range(128)]
    started = time.time()
    model.train()
    fit(model, tunes, device, args.fit_steps, batch=16)
    print(f"fitted in {time.time() - started:.1f} s")

    model.eval()
    settings = GenerationConfig(max_new_tokens=args.new_tokens, min_new_tokens=args.new_tokens, do_sample=True,
                                top_k=12, temperature=0.9, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
    openings = [[make_tune(generator, bars=2)[:-1] for _ in range(4)] for _ in range(args.groups)]
    started = time.time()
    tunes = continue_tunes(model, openings, device, settings)
    print(f"continued {len(tunes)} tunes in {time.time() - started:.1f} s")
    for tune in tunes[:2]:
        print("  ", to_abc(tune))


if __name__ == "__main__":
    main()
