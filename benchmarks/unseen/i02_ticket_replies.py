"""Drafts replies to support tickets: fine-tunes a tiny GPT-2 on an XLA device, then decodes drafts token by token with a static cache."""
import argparse
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import GPT2Config, GPT2LMHeadModel, StaticCache

TOPICS = "invoice login parcel refund outage".split()
OPENERS = "hello thanks sorry hi dear".split()
BODY = "we checked your case and the team will look at it today please wait for our mail about this".split()
WORDS = ["<pad>", "<end>", "<reply>"] + TOPICS + OPENERS + sorted(set(BODY))
IDS = {word: i for i, word in enumerate(WORDS)}


def thread(rng, length):
    """A ticket (topic and some words), the reply marker, and a reply that names the topic."""
    topic = rng.choice(TOPICS)
    ticket = [topic] + rng.choices(BODY, k=rng.randint(4, 9))
    start = rng.randrange(4)
    reply = [rng.choice(OPENERS), topic] + BODY[start:start + 10] + ["<end>"]
    ids = [IDS[w] for w in ticket + ["<reply>"] + reply]
    return (ids + [IDS["<pad>"]] * length)[:length]


class Prompts:
    """Ticket prompts, left-aligned in a field of one size; shorter ones are filled up with filler words."""

    def __init__(self, size, seed):
        self.size, self.rng = size, random.Random(seed)

    def batch(self, count):
        rows = []
        for _ in range(count):
            words = [self.rng.choice(TOPICS)] + self.rng.choices(BODY, k=self.rng.randint(3, self.size - 2))
            words = words + self.rng.choices(BODY, k=self.size)
            rows.append([IDS[w] for w in words[: self.size - 1]] + [IDS["<reply>"]])
        return torch.tensor(rows)


class Drafter:
    def __init__(self, model, device, prompt, new_tokens, batch):
        self.model, self.device, self.new_tokens = model, device, new_tokens
        self.prompt, self.batch = prompt, batch
        self.total = prompt + new_tokens

    @torch.no_grad()
    def __call__(self, ids):
        cache = StaticCache(config=self.model.config, max_cache_len=self.total)
        position = torch.arange(self.prompt).to(self.device)
        drafts = torch.zeros(self.batch, self.new_tokens, dtype=torch.long, device=self.device)
        slots = torch.arange(self.new_tokens).to(self.device)
        tokens = ids.to(self.device)
        for count in range(self.new_tokens):
            out = self.model(input_ids=tokens, position_ids=position.unsqueeze(0), past_key_values=cache, use_cache=True)
            tokens = out.logits[:, -1:].argmax(-1)
            here = (slots == torch.tensor(count).to(self.device)).long()
            drafts = drafts + tokens * here
            position = position[-1:] + 1
            xm.mark_step()
        return drafts.cpu()


def finetune(model, device, steps, batch, length, lr, rng):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    running = torch.zeros((), device=device)
    for step in range(1, steps + 1):
        ids = torch.tensor([thread(rng, length) for _ in range(batch)])
        labels = ids.masked_fill(ids == IDS["<pad>"], -100)
        seen = torch.ones_like(ids).to(device)
        loss = model(input_ids=ids.to(device), attention_mask=seen, labels=labels.to(device), use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        running += loss.detach()
        xm.mark_step()
        if step % 40 == 0:
            print(f"step {step}: loss {running.item() / 40:.3f}")
            running.zero_()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2)
    rng = random.Random(2)
    device = torch_xla.device()
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(WORDS), n_positions=64, n_embd=48, n_layer=1, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=IDS["<reply>"], eos_token_id=IDS["<end>"], attn_implementation="eager")).to(device)
    model.train()
    finetune(model, device, args.steps, args.batch, 28, 2e-3, rng)
    model.eval()
    prompts = Prompts(10, seed=3)
    drafter = Drafter(model, device, 10, args.new_tokens, args.batch)
    named = 0
    for round_ in range(args.rounds):
        ids = prompts.batch(args.batch)
        drafts = drafter(ids)
        named += int((drafts == ids[:, :1]).any(1).sum())
        print(f"round {round_}:", " ".join(WORDS[i] for i in drafts[0].tolist()))
    print(f"the topic is named in {named} of {args.rounds * args.batch} drafts")


if __name__ == "__main__":
    main()
