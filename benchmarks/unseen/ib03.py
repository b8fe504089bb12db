"""Rank support tickets by surprise: perplexity under a small GPT-2 (transformers, random weights).

Documents come from a toy grammar, are tokenised by a hash, sorted by length and
scored in batches, each padded to its longest member.
"""
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, PAD = 2048, 0
SUBJECTS = "printer router laptop screen account invoice password battery driver update".split()
VERBS = "fails freezes restarts overheats disappears blinks loops disconnects expires".split()
EXTRAS = ("after the last update", "since monday morning", "when I open the mail", "in the whole office",
          "again and again", "although I followed the manual", "and nobody answers the phone")


def write_ticket(rng):
    words = []
    for _ in range(1 + int(rng.geometric(0.16))):
        words += ["my", rng.choice(SUBJECTS), rng.choice(VERBS)]
        if rng.random() < 0.6:
            words += str(rng.choice(EXTRAS)).split()
        words.append(".")
    return " ".join(words)


def tokenize(text, limit=160):
    ids = [1 + zlib.crc32(w.encode()) % (VOCAB - 1) for w in text.split()]
    return ids[:limit]


def build_model():
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=VOCAB, n_positions=256, n_embd=128, n_layer=2, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
                        bos_token_id=PAD, eos_token_id=PAD)
    return GPT2LMHeadModel(config).eval()


def collate(batch):
    """Pads to the longest document of the batch."""
    width = max(len(ids) for ids in batch)
    ids = torch.full((len(batch), width), PAD, dtype=torch.long)
    for i, doc in enumerate(batch):
        ids[i, :len(doc)] = torch.tensor(doc)
    return ids, (ids != PAD).long()


def batches(docs, size):
    order = sorted(range(len(docs)), key=lambda i: len(docs[i]))
    for k in range(0, len(order) - size + 1, size):
        chosen = order[k:k + size]
        yield chosen, *collate([docs[i] for i in chosen])


class Scorer:
    def __init__(self, model):
        self.model = model
        self.forward = torch.compile(self._nll, backend="aot_eager", dynamic=False)

    def _nll(self, ids, mask):
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
        weight = mask[:, 1:].float()
        return (nll * weight).sum(1) / weight.sum(1).clamp(min=1.0)

    @torch.no_grad()
    def __call__(self, ids, mask):
        return self.forward(ids, mask)


def finetune(model, docs, steps=12, size=16):
    """A few plain eager steps, so that the ranking is not pure noise."""
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = np.random.default_rng(5)
    for step in range(steps):
        ids, mask = collate([docs[i][:48] for i in rng.integers(0, len(docs), size)])
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"warm-up fine-tuning: last loss {loss.item():.3f}")
    model.eval()


def main():
    rng = np.random.default_rng(0)
    texts = [write_ticket(rng) for _ in range(640)]
    docs = [tokenize(t) for t in texts]
    lengths = np.array([len(d) for d in docs])
    print(f"{len(docs)} tickets, {lengths.mean():.0f} words on average, longest {lengths.max()}")

    model = build_model()
    finetune(model, docs)
    scorer = Scorer(model)

    scores = np.zeros(len(docs))
    begin = time.perf_counter()
    for n, (chosen, ids, mask) in enumerate(batches(docs, 32)):
        scores[chosen] = scorer(ids, mask).numpy()
        if n % 5 == 0:
            print(f"batch {n}: width {ids.shape[1]}, mean nll {scores[chosen].mean():.3f}")
    print(f"scored in {time.perf_counter() - begin:.1f} s, perplexity {np.exp(scores.mean()):.1f}")
    for i in np.argsort(-scores)[:3]:
        print(f"{scores[i]:.2f}  {texts[i][:70]}")


if __name__ == "__main__":
    main()
