"""Intent classification of short support tickets with a small BERT built from a config (no download)."""
import argparse
import random
import time

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

PAD, CLS, SEP = 0, 1, 2
INTENTS = ["refund", "shipping", "login", "invoice", "cancel", "other"]


class TicketCorpus(Dataset):
    """Every intent prefers some topic words; the rest of a ticket is filler."""

    def __init__(self, n, vocab=600, max_len=46, seed=0):
        rng = np.random.default_rng(seed)
        topics = np.random.default_rng(7).integers(10, vocab, size=(len(INTENTS), 12))
        self.items = []
        for _ in range(n):
            y = int(rng.integers(len(INTENTS)))
            length = int(np.clip(rng.gamma(4.0, 8.0), 6, max_len))
            words = rng.integers(10, vocab, size=length)
            topical = rng.random(length) < 0.35
            words[topical] = rng.choice(topics[y], size=int(topical.sum()))
            self.items.append(([CLS, *words.tolist(), SEP], y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class PadCollator:
    def __init__(self, pad_id=PAD):
        self.pad_id = pad_id

    def __call__(self, batch):
        longest = max(len(ids) for ids, _ in batch)
        input_ids = torch.full((len(batch), longest), self.pad_id, dtype=torch.long)
        attention_mask = torch.zeros(len(batch), longest, dtype=torch.long)
        for row, (ids, _) in enumerate(batch):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            attention_mask[row, : len(ids)] = 1
        labels = torch.tensor([y for _, y in batch])
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def build_model(vocab):
    config = BertConfig(
        vocab_size=vocab, hidden_size=48, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=96, max_position_embeddings=48, num_labels=len(INTENTS),
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = torch.zeros((), device=device)
    seen = 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        right += (logits.argmax(-1) == batch["labels"]).sum()
        seen += batch["labels"].numel()
        xm.mark_step()
    return right.item() / seen


def train_epoch(model, loader, optimizer, scheduler, device):
    model.train()
    total = torch.zeros((), device=device)
    steps = 0
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        xm.optimizer_step(optimizer)
        scheduler.step()
        total += loss.detach()
        steps += 1
    return total.item() / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--tickets", type=int, default=400)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)

    device = torch.device("xla")
    train_set = TicketCorpus(args.tickets, seed=1)
    valid_set = TicketCorpus(160, seed=2)
    collate = PadCollator()
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    valid_loader = DataLoader(valid_set, args.batch_size, collate_fn=collate)

    model = build_model(600).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total_steps = args.epochs * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, total_steps // 10, total_steps)

    for epoch in range(args.epochs):
        start = time.time()
        loss = train_epoch(model, pl.MpDeviceLoader(train_loader, device), optimizer, scheduler, device)
        accuracy = evaluate(model, valid_loader, device)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}, {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
