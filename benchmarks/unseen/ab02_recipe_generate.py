"""Batch completion of recipe titles with a small Llama through generate() on XLA."""
import random
import time

import torch_xla
import torch
import torch_xla.core.xla_model as xm
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
)

VOCAB = 256
PAD, BOS, EOS = 0, 1, 2
NEW_TOKENS = 3


class CharTokenizer:
    def encode(self, text):
        return [BOS] + [3 + (ord(c) % (VOCAB - 3)) for c in text]

    def batch(self, texts):
        rows = [self.encode(t) for t in texts]
        width = max(len(r) for r in rows)
        ids = torch.full((len(rows), width), PAD, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for i, r in enumerate(rows):
            ids[i, width - len(r):] = torch.tensor(r)
            mask[i, width - len(r):] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def decode(self, ids):
        return "".join(chr(97 + (t % 26)) for t in ids if t > 2)


class SeenIngredients(LogitsProcessor):
    """Scales down tokens that the row already holds."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, input_ids, scores):
        score = torch.gather(scores, 1, input_ids)
        score = torch.where(score < 0, score * self.factor, score / self.factor)
        return scores.scatter(1, input_ids, score)


def make_titles(n, seed):
    rng = random.Random(seed)
    heads = ["soup", "stew", "pie", "roast", "salad", "curry"]
    mods = ["spicy", "green", "slow", "grandmother's", "smoked", "summer", "very quick"]
    mains = ["lentil", "pumpkin", "beef", "chickpea", "aubergine", "trout"]
    out = []
    for _ in range(n):
        k = rng.randint(0, 3)
        out.append(" ".join(rng.sample(mods, k) + [rng.choice(mains), rng.choice(heads)]))
    return out


def chunks(seq, size):
    for i in range(0, len(seq), size):
        yield seq[i:i + size]


def build_model():
    torch.manual_seed(4)
    cfg = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
    return LlamaForCausalLM(cfg).eval().to(torch.device("xla"))


def main():
    model = build_model()
    tok = CharTokenizer()
    gen = GenerationConfig(
        max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
    processors = LogitsProcessorList([SeenIngredients(1.3)])
    titles = make_titles(16, seed=11)
    done = []
    start = time.time()
    for part in chunks(titles, 4):
        batch = {k: v.to(model.device) for k, v in tok.batch(part).items()}
        with torch.no_grad():
            ids = model.generate(**batch, generation_config=gen, logits_processor=processors)
        xm.mark_step()
        fresh = ids[:, batch["input_ids"].shape[1]:].cpu().tolist()
        done += [(t, tok.decode(r)) for t, r in zip(part, fresh)]
    took = time.time() - start
    for title, text in done[:4]:
        print(f"{title:40s} -> {text}")
    print(f"{len(done)} titles in {took:.1f}s")


if __name__ == "__main__":
    main()
