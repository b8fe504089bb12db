"""Score completions with a small Llama: fit it on synthetic arithmetic for a few steps, then decode greedily.

The model is random at the start; the task is to copy a digit string backwards.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = {c: i for i, c in enumerate("0123456789>$.")}
INV = {i: c for c, i in VOCAB.items()}


def encode(text):
    return [VOCAB[c] for c in text]


def make_batch(rng, n, length):
    digits = torch.randint(0, 10, (n, length), generator=rng)
    arrow = torch.full((n, 1), VOCAB[">"])
    stop = torch.full((n, 1), VOCAB["$"])
    return torch.cat([digits, arrow, digits.flip(1), stop], 1)


def build():
    config = LlamaConfig(
        vocab_size=len(VOCAB), hidden_size=96, intermediate_size=192, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        attn_implementation="sdpa", bos_token_id=None, eos_token_id=VOCAB["$"],
    )
    return LlamaForCausalLM(config)


def fit(model, rng, steps, length):
    """Eager training; short enough that compiling it would not pay."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    model.train()
    for i in range(steps):
        ids = make_batch(rng, 32, length)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, length:-1].flatten(0, 1), ids[:, length + 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 40 == 0:
            print(f"fit {i:4d}  loss {loss.item():.3f}")


class Decoder:
    def __init__(self, model):
        self.model = model.eval()
        self.forward = torch.compile(self._forward, backend="aot_eager", dynamic=False)

    def _forward(self, ids):
        hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        return self.model.lm_head(hidden[:, -1])

    @torch.no_grad()
    def greedy(self, prompt, max_new):
        ids = prompt
        done = torch.zeros(len(ids), dtype=torch.bool)
        for _ in range(max_new):
            nxt = self.forward(ids).argmax(-1)
            nxt = torch.where(done, torch.full_like(nxt, VOCAB["."]), nxt)
            done = done | (nxt == VOCAB["$"])
            ids = torch.cat([ids, nxt[:, None]], 1)
            if bool(done.all()):
                break
        return ids


def accuracy(out, prompt_len, target):
    gen = out[:, prompt_len:]
    width = min(gen.shape[1], target.shape[1])
    return (gen[:, :width] == target[:, :width]).float().mean().item()


def show(ids):
    return "".join(INV[int(i)] for i in ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(2)
    model = build()
    print("parameters", sum(p.numel() for p in model.parameters()))
    fit(model, rng, args.steps, args.length)
    decoder = Decoder(model)
    prompt_len = args.length + 1
    for r in range(args.rounds):
        full = make_batch(rng, 24, args.length)
        started = time.perf_counter()
        out = decoder.greedy(full[:, :prompt_len], args.length + 1)
        acc = accuracy(out, prompt_len, full[:, prompt_len:])
        print(f"round {r:2d}  token accuracy {acc:.3f}  {time.perf_counter() - started:.2f} s")
    print("example", show(out[0]))


if __name__ == "__main__":
    main()
