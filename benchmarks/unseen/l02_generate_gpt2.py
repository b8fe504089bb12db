"""Completes batches of prompts with a small GPT-2 on the XLA device."""
import argparse
import time

import torch
import torch_xla
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel


def build(vocabulary, context):
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=context, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, attn_implementation="eager")
    return GPT2LMHeadModel(config).eval()


def prompts(count, batch, length, vocabulary):
    generator = torch.Generator().manual_seed(4)
    for _ in range(count):
        yield torch.randint(1, vocabulary, (batch, length), generator=generator)


class Completer:
    """Greedy decoding, with keys and values of the past kept by the model."""

    def __init__(self, model, device, new_tokens):
        self.model = model.to(device)
        self.device = device
        self.new_tokens = new_tokens

    @torch.no_grad()
    def __call__(self, ids):
        ids = ids.to(self.device)
        pieces = []
        past = None
        step_input = ids
        for _ in range(self.new_tokens):
            output = self.model(input_ids=step_input, past_key_values=past, use_cache=True)
            past = output.past_key_values
            step_input = output.logits[:, -1:].argmax(-1)
            pieces.append(step_input)
            torch_xla.sync()
        return torch.cat(pieces, dim=1).cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=96)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    model = build(args.vocabulary, 64)
    complete = Completer(model, device, args.new_tokens)
    settings = GenerationConfig(max_new_tokens=args.new_tokens, do_sample=False)
    print("greedy, up to", settings.max_new_tokens, "tokens on", device)
    for index, ids in enumerate(prompts(args.batches, 4, 8, args.vocabulary)):
        start = time.perf_counter()
        tokens = complete(ids)
        print(f"batch {index}: {tokens.shape[1]} tokens in {time.perf_counter() - start:.2f} s, first {tokens[0, :5].tolist()}")


if __name__ == "__main__":
    main()
