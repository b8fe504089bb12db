"""Sorts commit messages into kinds with a small BERT; forward compiled with aot_eager."""
import random

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

KINDS, VOCAB = 4, 300
WIDTHS = (12, 24, 40)


def synth_message(rng):
    kind = rng.randrange(KINDS)
    n = rng.randint(4, WIDTHS[-1])
    ids = [rng.randint(10, VOCAB - 1) for _ in range(n)]
    for _ in range(max(1, n // 5)):
        ids[rng.randrange(n)] = 2 + kind
    return ids, kind


def width_for(n):
    return next(w for w in WIDTHS if n <= w)


def pack(rows, width):
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, (r, _) in enumerate(rows):
        ids[i, :len(r)] = torch.tensor(r)
        mask[i, :len(r)] = 1
    return ids, mask, torch.tensor([k for _, k in rows])


def batches(rows, size, rng):
    """Full batches only, each of one width."""
    shelves = {w: [] for w in WIDTHS}
    for row in rng.sample(rows, len(rows)):
        shelf = shelves[width_for(len(row[0]))]
        shelf.append(row)
        if len(shelf) == size:
            yield pack(shelf, width_for(max(len(r) for r, _ in shelf)))
            shelf.clear()


class Average:
    """Shadow copy of the weights, used for evaluation."""

    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.shadow, list(model.parameters()), 1 - self.decay)

    @torch.no_grad()
    def swap(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            keep = p.clone()
            p.copy_(s)
            s.copy_(keep)


def evaluate(forward, model, rows, rng):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for ids, mask, kinds in batches(rows, 16, rng):
            right += int((forward(ids, mask).argmax(-1) == kinds).sum())
            seen += len(kinds)
    model.train()
    return right / seen


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    train = [synth_message(rng) for _ in range(960)]
    valid = [synth_message(rng) for _ in range(320)]
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=64, num_labels=KINDS))

    @torch.compile(backend="aot_eager", dynamic=False)
    def forward(ids, mask):
        return model(input_ids=ids, attention_mask=mask).logits

    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = get_linear_schedule_with_warmup(opt, 20, 8 * 58)
    average = Average(model)
    step = 0
    for epoch in range(8):
        for ids, mask, kinds in batches(train, 16, rng):
            loss = F.cross_entropy(forward(ids, mask), kinds)
            loss.backward()
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            average.update(model)
            step += 1
            if step % 50 == 0:
                print(f"step {step} lr {sched.get_last_lr()[0]:.2e} loss {loss.item():.4f}")
        average.swap(model)
        print(f"epoch {epoch} accuracy {evaluate(forward, model, valid, rng):.3f}")
        average.swap(model)


if __name__ == "__main__":
    main()
