"""Train a tiny GPT-2 on recipe steps, then write continuations with generate()."""
import random

import torch
import torch_xla
from transformers import GPT2Config, GPT2LMHeadModel

VERBS = "chop boil fry stir bake whisk fold simmer season rest".split()
THINGS = "onion rice egg flour butter garlic bean carrot fish dough".split()
LINKS = "the then until with and for some in warm golden".split()
VOCAB = ["<pad>", "<bos>", "<eos>"] + VERBS + THINGS + LINKS
IDS = {w: i for i, w in enumerate(VOCAB)}
CTX = 40


def sentence(rng):
    words = ["<bos>"]
    while len(words) < CTX:
        words += [rng.choice(VERBS), "the", rng.choice(THINGS), rng.choice(LINKS)]
    return [IDS[w] for w in words[:CTX]]


class Writer:
    def __init__(self, model, device):
        self.model, self.device = model, device

    def prompts(self, rng, n, size):
        rows = [sentence(rng)[:size] for _ in range(n)]
        return torch.tensor(rows, device=self.device)

    @torch.no_grad()
    def continue_(self, ids, extra):
        mask = torch.ones_like(ids)
        out = self.model.generate(
            ids, attention_mask=mask, max_new_tokens=extra, do_sample=False, use_cache=True,
            eos_token_id=None, pad_token_id=IDS["<pad>"])
        return out[:, ids.shape[1]:].cpu()


def fit(model, device, steps, rng):
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    corpus = torch.tensor([sentence(rng) for _ in range(800)])
    loss = None
    for step in range(1, steps + 1):
        pick = torch.tensor([rng.randrange(len(corpus)) for _ in range(16)])
        ids = corpus[pick].to(device)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        torch_xla.sync()
        if step % 50 == 0:
            print(f"train {step}: {loss.item():.3f}")


def distinct(rows):
    grams = {tuple(r[i:i + 2]) for r in rows for i in range(len(r) - 1)}
    return len(grams) / max(1, sum(len(r) - 1 for r in rows))


def main():
    torch.manual_seed(5)
    rng = random.Random(5)
    device = torch_xla.device()
    cfg = GPT2Config(vocab_size=len(VOCAB), n_positions=96, n_embd=32, n_layer=2, n_head=2,
                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                     bos_token_id=IDS["<bos>"], eos_token_id=IDS["<eos>"], attn_implementation="eager")
    model = GPT2LMHeadModel(cfg).to(device)
    model.train()
    fit(model, device, 100, rng)
    model.eval()
    writer = Writer(model, device)
    for size in (6, 6, 9):
        ids = writer.prompts(rng, 4, size)
        rows = writer.continue_(ids, extra=16).tolist()
        print("prompt", size, "distinct-2", round(distinct(rows), 3))
        print("  ", " ".join(VOCAB[t] for t in rows[0][:10]))


if __name__ == "__main__":
    main()
