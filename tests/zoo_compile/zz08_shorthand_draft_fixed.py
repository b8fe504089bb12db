"""Speculative decoding of telegraph shorthand: a one-layer draft model proposes, a larger one verifies."""
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

SIGNS = 40
CONTEXT = 24
DEEPEST = 8


def telegrams(rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """A noisy cyclic code: each sign follows from the two before it."""
    ids = torch.randint(0, SIGNS, (rows, length), generator=generator)
    noise = torch.rand(rows, length, generator=generator) < 0.1
    for i in range(2, length):
        follow = (3 * ids[:, i - 1] + ids[:, i - 2] + 7) % SIGNS
        ids[:, i] = torch.where(noise[:, i], ids[:, i], follow)
    return ids


def language_model(layers: int, width: int) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=SIGNS, n_positions=64, n_embd=width, n_layer=layers, n_head=4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )


def fit(model, steps: int, generator: torch.Generator, lr: float = 3e-3) -> float:
    model.train()
    forward = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for _ in range(steps):
        ids = telegrams(32, CONTEXT, generator)
        logits = forward(input_ids=ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return loss.item()


@dataclass
class Tally:
    proposed: int = 0
    accepted: int = 0
    rounds: int = 0


class SpeculativeDecoder:
    def __init__(self, draft, target, depth: int = 4, window: int = CONTEXT):
        self.draft, self.target = draft, target
        self.depth = depth
        self.window = window
        self.tally = Tally()
        self.follow = torch.compile(self._follow, backend="aot_eager", dynamic=False)
        self.choose = torch.compile(self._choose, backend="aot_eager", dynamic=False)

    def _follow(self, context: torch.Tensor) -> torch.Tensor:
        return self.draft(input_ids=context, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)

    def _choose(self, candidate: torch.Tensor) -> torch.Tensor:
        return self.target(input_ids=candidate, use_cache=False).logits.argmax(-1)

    def propose(self, context: torch.Tensor, depth: int) -> torch.Tensor:
        recent = context.new_empty(context.shape[0], self.window)
        for _ in range(depth):
            recent.copy_(context[:, -self.window :])
            context = torch.cat([context, self.follow(recent)], dim=1)
        return context

    def verify(self, candidate: torch.Tensor, depth: int):
        length = candidate.shape[1]
        choice = self.choose(F.pad(candidate, (0, self.window + DEEPEST - length)))[:, length - depth - 1 : length]
        kept = int((choice[0, :depth] == candidate[0, length - depth :]).long().cumprod(0).sum())
        return kept, choice

    @torch.no_grad()
    def decode(self, prompt: torch.Tensor, length: int) -> torch.Tensor:
        text = prompt
        while text.shape[1] < length:
            candidate = self.propose(text[:, -self.window :], self.depth)
            kept, choice = self.verify(candidate, self.depth)
            fresh = torch.cat([candidate[:, self.window : self.window + kept], choice[:, kept : kept + 1]], dim=1)
            text = torch.cat([text, fresh], dim=1)
            self.tally.rounds += 1
            self.tally.proposed += self.depth
            self.tally.accepted += kept
            self.depth = min(self.depth + 1, DEEPEST) if kept == self.depth else max(self.depth - 1, 1)
        return text[:, :length]


def main():
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(4)
    draft, target = language_model(1, 32), language_model(3, 64)
    print(f"draft  loss {fit(draft, 300, generator):.3f}")
    print(f"target loss {fit(target, 300, generator):.3f}")

    decoder = SpeculativeDecoder(draft, target)
    prompts = telegrams(12, CONTEXT, generator)
    begun = time.perf_counter()
    for prompt in prompts.split(1):
        decoder.decode(prompt, length=CONTEXT + 60)
    tally = decoder.tally
    print(
        f"{tally.rounds} rounds, {tally.accepted} of {tally.proposed} signs accepted, "
        f"{time.perf_counter() - begun:.1f} s"
    )


if __name__ == "__main__":
    main()
