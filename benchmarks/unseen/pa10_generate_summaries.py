"""Offline sampling from a small causal language model, with a compiled forward pass."""
import argparse
import json
import time

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()


class BannedTokens(LogitsProcessor):
    def __init__(self, banned):
        self.banned = torch.tensor(banned)

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, self.banned] = -float("inf")
        return scores


class PromptSource:
    """Token prompts of one fixed length, left padded, grouped into requests."""

    def __init__(self, vocab, length, batch, requests, pad_id, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.vocab, self.length, self.batch = vocab, length, batch
        self.requests, self.pad_id = requests, pad_id

    def __iter__(self):
        for _ in range(self.requests):
            ids = torch.randint(3, self.vocab, (self.batch, self.length), generator=self.gen)
            lens = torch.randint(self.length // 2, self.length + 1, (self.batch,), generator=self.gen)
            mask = (torch.arange(self.length)[None] >= (self.length - lens)[:, None]).long()
            yield {"input_ids": ids * mask + self.pad_id * (1 - mask), "attention_mask": mask}


def build_model(args):
    config = LlamaConfig(
        vocab_size=args.vocab, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    model.forward = torch.compile(model.forward, backend="aot_eager", dynamic=False)
    return model


def generation_config(args):
    return GenerationConfig(
        max_new_tokens=args.new_tokens, min_new_tokens=args.new_tokens, do_sample=True,
        temperature=0.9, top_k=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )


def distinct_ngrams(rows, n=2):
    grams, total = set(), 0
    for row in rows:
        for i in range(len(row) - n + 1):
            grams.add(tuple(row[i:i + n]))
            total += 1
    return len(grams) / max(total, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=200)
    ap.add_argument("--prompt-length", type=int, default=24)
    ap.add_argument("--new-tokens", type=int, default=14)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--requests", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(11)
    model = build_model(args)
    config = generation_config(args)
    processors = LogitsProcessorList([BannedTokens([5, 6, 7])])
    outputs, stats = [], []
    with torch.inference_mode():
        for request in PromptSource(args.vocab, args.prompt_length, args.batch, args.requests, 0):
            start = time.perf_counter()
            ids = model.generate(**request, generation_config=config, logits_processor=processors)
            fresh = ids[:, args.prompt_length:]
            stats.append(fresh.numel() / (time.perf_counter() - start))
            outputs.extend(fresh.tolist())
    print(json.dumps({"samples": len(outputs), "distinct2": round(distinct_ngrams(outputs), 3),
                      "tokens_per_s": [round(s, 1) for s in stats]}))


if __name__ == "__main__":
    main()
