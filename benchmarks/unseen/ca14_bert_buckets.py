"""Sequence classification with a tiny BERT; lengths are grouped into three buckets."""
import random
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import BertConfig, BertForSequenceClassification

BUCKETS = (16, 32, 64)


class Reviews(Dataset):
    def __init__(self, n, seed=0):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            label = rng.randrange(3)
            length = rng.randint(6, 64)
            ids = [rng.randrange(10, 300) if rng.random() > 0.2 else 10 + label for _ in range(length)]
            self.rows.append((ids, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def bucket_of(length):
    return next(b for b in BUCKETS if length <= b)


class BucketSampler(Sampler):
    def __init__(self, data, batch, seed=0, shuffle=True):
        self.batch, self.rng, self.shuffle = batch, random.Random(seed), shuffle
        self.groups = {b: [] for b in BUCKETS}
        for i, (ids, _) in enumerate(data.rows):
            self.groups[bucket_of(len(ids))].append(i)

    def __iter__(self):
        batches = []
        for members in self.groups.values():
            if self.shuffle:
                self.rng.shuffle(members)
            for k in range(0, len(members) - self.batch + 1, self.batch):
                batches.append(members[k:k + self.batch])
        if self.shuffle:
            self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return sum(len(m) // self.batch for m in self.groups.values())


def collate(rows):
    width = bucket_of(max(len(ids) for ids, _ in rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for r, (tokens, _) in enumerate(rows):
        ids[r, :len(tokens)] = torch.tensor(tokens)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([y for _, y in rows])}


class Progress:
    def __init__(self, every):
        self.every, self.sum, self.n, self.t = every, torch.zeros(()), 0, time.time()

    def __call__(self, loss):
        self.sum += loss.detach()
        self.n += 1
        if self.n % self.every == 0:
            print(f"batch {self.n} loss {(self.sum / self.every).item():.4f} {time.time() - self.t:.1f}s", flush=True)
            self.sum.zero_()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    for batch in loader:
        labels = batch.pop("labels")
        right += (model(**batch).logits.argmax(-1) == labels).sum().item()
        total += len(labels)
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=320, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=64, num_labels=3,
                        problem_type="single_label_classification", attn_implementation="eager")
    model = BertForSequenceClassification(config)
    compiled = torch.compile(model, dynamic=False, backend="aot_eager")
    train, test = Reviews(1600), Reviews(200, seed=1)
    train_loader = DataLoader(train, batch_sampler=BucketSampler(train, 16), collate_fn=collate)
    test_loader = DataLoader(test, batch_sampler=BucketSampler(test, 16, shuffle=False), collate_fn=collate)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    epochs = 2
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=epochs * len(train_loader))
    progress = Progress(50)
    for epoch in range(epochs):
        for batch in train_loader:
            loss = compiled(**batch).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            sched.step()
            progress(loss)
        if epoch % 2 == 1:
            print(f"epoch {epoch} accuracy {evaluate(model, test_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
