"""Routing of support tickets to teams: a small BERT classifier, trained with the Trainer on xla."""
import argparse
import random

import numpy as np
import torch
import torch_xla  # noqa: F401
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

TEAMS = ["billing", "network", "hardware", "accounts", "returns"]
PAD, CLS, SEP = 0, 1, 2


def synth_ticket(rng, team, vocab):
    """A bag of general words with some that only the team's tickets use."""
    n = min(60, max(6, int(rng.lognormvariate(3.0, 0.5))))
    span = (vocab - 100) // len(TEAMS)
    words = []
    for _ in range(n):
        if rng.random() < 0.25:
            words.append(100 + team * span + rng.randrange(span))
        else:
            words.append(rng.randrange(3, 100))
    return [CLS] + words + [SEP]


class TicketDataset(Dataset):
    def __init__(self, size, vocab, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(size):
            team = rng.randrange(len(TEAMS))
            self.items.append({"input_ids": synth_ticket(rng, team, vocab), "label": team})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class TicketCollator:
    def __init__(self, max_length=64):
        self.max_length = max_length

    def __call__(self, features):
        rows = [f["input_ids"][: self.max_length] for f in features]
        width = max(len(r) for r in rows)
        ids = torch.full((len(rows), width), PAD)
        for i, r in enumerate(rows):
            ids[i, : len(r)] = torch.tensor(r)
        return {
            "input_ids": ids,
            "attention_mask": (ids != PAD).long(),
            "labels": torch.tensor([f["label"] for f in features]),
        }


class RoutingTrainer(Trainer):
    """Cross entropy weighted by how busy a team is; keeps the training accuracy for the log."""

    def __init__(self, *args, team_weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.team_weights = torch.tensor(team_weights).to(self.args.device)
        self.hits = 0
        self.seen = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logits = outputs.logits
        loss = torch.nn.functional.cross_entropy(logits, labels, weight=self.team_weights)
        if model.training:
            self.hits += (logits.argmax(-1) == labels).sum().item()
            self.seen += labels.numel()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if self.seen and "loss" in logs:
            logs["train_accuracy"] = round(self.hits / self.seen, 4)
            self.hits = self.seen = 0
        super().log(logs, *args, **kwargs)


class LossCurve(TrainerCallback):
    def __init__(self):
        self.points = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.points.append((state.global_step, logs["loss"], logs.get("train_accuracy")))


def accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--vocab", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    opts = parser.parse_args()
    set_seed(13)

    config = BertConfig(
        vocab_size=opts.vocab, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64, num_labels=len(TEAMS), attn_implementation="eager",
    )
    model = BertForSequenceClassification(config)
    args = TrainingArguments(
        output_dir="/tmp/ticket_routing", max_steps=opts.steps, per_device_train_batch_size=opts.batch,
        per_device_eval_batch_size=opts.batch, learning_rate=1e-3, warmup_steps=5, logging_steps=8,
        save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False, dataloader_drop_last=True,
    )
    curve = LossCurve()
    trainer = RoutingTrainer(
        model=model, args=args, data_collator=TicketCollator(), compute_metrics=accuracy, callbacks=[curve],
        train_dataset=TicketDataset(1200, opts.vocab, seed=1), eval_dataset=TicketDataset(64, opts.vocab, seed=2),
        team_weights=[1.0, 1.0, 1.2, 0.9, 1.1],
    )
    trainer.train()
    for step, loss, acc in curve.points:
        print(f"step {step:4d}  loss {loss:.3f}  accuracy {acc}")
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
