"""Bigram-attention language model trained with a token budget per optimizer step."""
import random

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, PAD, LENGTH = 40, 0, 16


class Corpus:
    """Documents of differing length, padded to one length."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.docs = []
        for _ in range(n):
            k = rng.randint(4, LENGTH)
            start = rng.randint(1, VOCAB - 1)
            self.docs.append([1 + (start + 3 * i + rng.randint(0, 1)) % (VOCAB - 1) for i in range(k)])
        self.rng = rng

    def stream(self, micro):
        while True:
            self.rng.shuffle(self.docs)
            for i in range(0, len(self.docs) - micro + 1, micro):
                rows = self.docs[i:i + micro]
                tokens = sum(len(r) for r in rows)
                yield torch.tensor([r + [PAD] * (LENGTH - len(r)) for r in rows]), tokens


class TinyLM(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.mix = nn.Linear(dim * 2, dim)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        x = self.emb(ids)
        before = F.pad(x[:, :-1], (0, 0, 1, 0))
        h = self.mix(torch.cat([x, before], -1))
        return self.out(self.norm(x + torch.tanh(h)))


def nll(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD, reduction="sum")


class BudgetTrainer:
    def __init__(self, model, optimizer, budget, device):
        self.model, self.optimizer, self.budget, self.device = model, optimizer, budget, device
        self.running = torch.zeros((), device=device)
        self.updates = 0
        self.skipped = 0

    def accumulate(self, stream):
        tokens = 0
        while tokens < self.budget:
            ids, n = next(stream)
            loss = nll(self.model, ids.to(self.device)) / self.budget
            loss.backward()
            self.running += loss.detach()
            tokens += n
        return tokens

    def apply(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if torch.isfinite(norm):
            self.optimizer.step()
        else:
            self.skipped += 1
        self.optimizer.zero_grad()
        xm.mark_step()
        self.updates += 1

    def report(self, every):
        print(f"update {self.updates} loss {self.running.item() / every:.4f} skipped {self.skipped}", flush=True)
        self.running = torch.zeros((), device=self.device)


@torch.no_grad()
def perplexity(model, corpus, micro, device, batches=20):
    model.eval()
    stream = corpus.stream(micro)
    total, count = torch.zeros((), device=device), 0
    for _ in range(batches):
        ids, n = next(stream)
        total += nll(model, ids.to(device))
        count += n - micro
        xm.mark_step()
    return float(torch.exp(total / count))


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    stream = Corpus(300, 1).stream(4)
    model = TinyLM().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    trainer = BudgetTrainer(model, optimizer, budget=110, device=device)
    for _ in range(60):
        trainer.accumulate(stream)
        trainer.apply()
        if trainer.updates % 20 == 0:
            trainer.report(20)
    print(f"held-out perplexity {perplexity(model, Corpus(100, 2), 4, device):.2f}")


if __name__ == "__main__":
    main()
