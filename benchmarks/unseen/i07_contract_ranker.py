"""Ranks contract clauses by risk with a small Electra encoder from transformers, compiled, on the CPU."""
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import ElectraConfig, ElectraForSequenceClassification, get_cosine_schedule_with_warmup, set_seed

RISKY = "terminate penalty indemnify breach waive forfeit liable unlimited".split()
PLAIN = "party agreement shall notice delivery date copy section term address written both the of and to in".split()


class ClauseEncoder:
    """Words to numbers, always `length` of them."""

    def __init__(self, length):
        self.ids = {w: i + 2 for i, w in enumerate(sorted(set(RISKY + PLAIN)))}
        self.length = length

    def __len__(self):
        return len(self.ids) + 2

    def __call__(self, words):
        ids = [1] + [self.ids[w] for w in words][: self.length - 1]
        mask = [1] * len(ids) + [0] * (self.length - len(ids))
        return ids + [0] * (self.length - len(ids)), mask


class Clauses(Dataset):
    def __init__(self, encoder, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            size = rng.randint(6, 40)
            share = rng.choice([0.0, 0.1, 0.3])
            words = [rng.choice(RISKY if rng.random() < share else PLAIN) for _ in range(size)]
            ids, mask = encoder(words)
            risk = sum(w in RISKY for w in words) / size * 4
            self.rows.append({
                "input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(risk)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def rank_correlation(scores, risks):
    a, b = scores.argsort().argsort(), risks.argsort().argsort()
    return float(np.corrcoef(a, b)[0, 1])


class HeadNotes:
    """Collects the norm of the head's weights now and then, for the run's notes."""

    def __init__(self, every):
        self.every, self.norms = every, []

    def after(self, step, model):
        if step % self.every == 0:
            self.norms.append(model.classifier.out_proj.weight.detach().norm().item())


@dataclass
class Job:
    train: int = 1280
    test: int = 128
    batch: int = 16
    length: int = 32
    epochs: int = 2
    lr: float = 1e-3


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    scores, risks = [], []
    for batch in loader:
        scores.append(model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.squeeze(-1))
        risks.append(batch["labels"])
    model.train()
    return rank_correlation(torch.cat(scores).numpy(), torch.cat(risks).numpy())


def main(job=Job()):
    set_seed(17)
    encoder = ClauseEncoder(job.length)
    model = ElectraForSequenceClassification(ElectraConfig(
        vocab_size=len(encoder), embedding_size=32, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=job.length, num_labels=1, problem_type="regression",
        hidden_dropout_prob=0.05, attention_probs_dropout_prob=0.0, attn_implementation="eager"))
    model.compile(backend="aot_eager")
    train = DataLoader(Clauses(encoder, job.train, 1), job.batch, shuffle=True, drop_last=True)
    test = DataLoader(Clauses(encoder, job.test, 2), job.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.lr)
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, job.epochs * len(train))
    notes, step = HeadNotes(every=20), 0
    for epoch in range(job.epochs):
        model.train()
        total = 0.0
        for batch in train:
            scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            loss = F.mse_loss(scores.squeeze(-1), batch["labels"])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.item()
            step += 1
            notes.after(step, model)
        print(f"epoch {epoch}: loss {total / len(train):.4f}, rank correlation {evaluate(model, test):.3f}")
    print("head norms", [round(n, 2) for n in notes.norms])


if __name__ == "__main__":
    main()
