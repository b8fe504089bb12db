"""Entity tagger for support tickets, fine-tuned with transformers.Trainer on an XLA device."""
import argparse
import random
import tempfile

import torch_xla
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

LABELS = ["O", "B-PROD", "I-PROD", "B-ORDER", "I-ORDER"]
VOCAB = 400
MAX_LEN = 40


def synth_ticket(rng):
    n = rng.randint(12, MAX_LEN - 2)
    ids, tags = [1], [-100]
    while len(ids) < n:
        if rng.random() < 0.15:
            kind = rng.choice([1, 3])
            base = 100 if kind == 1 else 200
            for j in range(rng.randint(1, 3)):
                ids.append(base + rng.randint(0, 90))
                tags.append(kind if j == 0 else kind + 1)
        else:
            ids.append(rng.randint(3, 99))
            tags.append(0)
    ids.append(2)
    tags.append(-100)
    return ids[:MAX_LEN], tags[:MAX_LEN]


class Tickets(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [synth_ticket(rng) for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, tags = self.rows[i]
        return {"input_ids": ids, "labels": tags}


def collate(rows):
    ids = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    mask = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    labels = torch.full((len(rows), MAX_LEN), -100, dtype=torch.long)
    for r, row in enumerate(rows):
        n = len(row["input_ids"])
        ids[r, :n] = torch.tensor(row["input_ids"])
        mask[r, :n] = 1
        labels[r, :n] = torch.tensor(row["labels"])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class FocalTrainer(Trainer):
    """Token level focal loss, since most tokens are O."""

    def __init__(self, *args, gamma=1.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.gamma = gamma

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits.view(-1, len(LABELS))
        flat = labels.view(-1)
        tagged = flat != -100
        logp = F.log_softmax(logits[tagged], dim=-1)
        target = flat[tagged]
        nll = F.nll_loss(logp, target, reduction="none")
        loss = ((1 - torch.exp(-nll)) ** self.gamma * nll).mean()
        return (loss, outputs) if return_outputs else loss


class GradientWatch(TrainerCallback):
    def __init__(self):
        self.peak = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        for name, p in model.named_parameters():
            if p.grad is None:
                continue
            norm = float(p.grad.norm())
            if norm > self.peak.get(name, 0.0):
                self.peak[name] = norm


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=12)
    opt = ap.parse_args()
    torch.manual_seed(0)
    model = DistilBertForTokenClassification(DistilBertConfig(
        vocab_size=VOCAB, dim=16, hidden_dim=32, n_layers=1, n_heads=2,
        max_position_embeddings=MAX_LEN, num_labels=len(LABELS)))
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, per_device_train_batch_size=6, max_steps=opt.steps,
            learning_rate=3e-4, lr_scheduler_type="linear", warmup_steps=3,
            logging_steps=6, save_strategy="no", report_to=[],
            remove_unused_columns=False, dataloader_drop_last=True, dataloader_pin_memory=False, disable_tqdm=True)
        watch = GradientWatch()
        trainer = FocalTrainer(
            model=model, args=args, train_dataset=Tickets(120, 1),
            data_collator=collate, callbacks=[watch])
        result = trainer.train()
    print("device", trainer.args.device, "loss", round(result.training_loss, 4))
    top = sorted(watch.peak.items(), key=lambda kv: -kv[1])[:3]
    print("largest gradients", [(n, round(v, 3)) for n, v in top])


if __name__ == "__main__":
    main()
