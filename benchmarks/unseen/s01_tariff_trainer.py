"""Assign customs chapters to goods descriptions with a small DistilBERT and a focal loss.

Common chapters dominate, so training starts with a strongly focused loss that relaxes as the classifier settles.
"""
import argparse
import logging
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
import torch_xla
from torch.utils.data import Dataset
from transformers import (DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)

log = logging.getLogger("tariff")

CHAPTERS = {
    "03 fish": "frozen fillet cod haddock chilled salted smoked roe mackerel",
    "09 coffee": "roasted beans decaffeinated arabica husks ground pepper vanilla",
    "44 wood": "plywood veneer sawn oak pine particle board coffered laminated",
    "61 apparel": "knitted jersey cotton cardigan hosiery gloves infant babies",
    "73 iron": "threaded bolts seamless pipe galvanised wire anchors chain cast",
    "85 electrical": "insulated cable battery rectifier switchgear lamp transformer coil",
}
FILLER = "of for with other not elsewhere specified kg net assorted packed retail bulk origin new used parts".split()


class WordTokenizer:
    """Whitespace vocabulary with padding to a fixed number of tokens."""

    def __init__(self, texts, max_length):
        words = sorted({w for t in texts for w in t.split()})
        self.vocab = {"[PAD]": 0, "[CLS]": 1, "[UNK]": 2, **{w: i + 3 for i, w in enumerate(words)}}
        self.max_length = max_length

    def __len__(self):
        return len(self.vocab)

    def __call__(self, text):
        ids = [1] + [self.vocab.get(w, 2) for w in text.split()]
        ids = ids[: self.max_length]
        pad = self.max_length - len(ids)
        return ids + [0] * pad, [1] * len(ids) + [0] * pad


def invent_declarations(n, rng):
    names = list(CHAPTERS)
    weights = [8, 5, 3, 2, 2, 1]
    out = []
    for _ in range(n):
        label = rng.choices(range(len(names)), weights)[0]
        words = rng.sample(CHAPTERS[names[label]].split(), rng.randint(2, 4)) + rng.sample(FILLER, rng.randint(2, 8))
        rng.shuffle(words)
        out.append((" ".join(words), label))
    return out


class Declarations(Dataset):
    def __init__(self, rows, tokenizer):
        self.rows = [(*tokenizer(text), label) for text, label in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, mask, label = self.rows[i]
        return {"input_ids": ids, "attention_mask": mask, "labels": label}


@dataclass
class FocusSchedule:
    start: float = 2.5
    end: float = 0.5
    epochs: int = 3

    def at(self, epoch):
        progress = min(int(epoch or 0), self.epochs) / self.epochs
        return self.start + (self.end - self.start) * progress


class FocalTrainer(Trainer):
    def __init__(self, *args, focus, **kwargs):
        super().__init__(*args, **kwargs)
        self.focus = focus

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logp = F.log_softmax(outputs.logits, dim=-1).gather(1, labels.unsqueeze(1)).squeeze(1)
        gamma = self.focus.at(self.state.epoch)
        modulation = (1.0 - logp.exp()).clamp_min(1e-4) ** gamma
        loss = -(modulation * logp).mean()
        return (loss, outputs) if return_outputs else loss


class EpochTable(TrainerCallback):
    def __init__(self):
        self.rows = []

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.rows.append((state.global_step, metrics["eval_loss"], metrics["eval_macro_recall"]))
        log.info("step %d: eval loss %.3f, macro recall %.3f", *self.rows[-1])


def macro_recall(prediction):
    guess = np.argmax(prediction.predictions, axis=-1)
    truth = prediction.label_ids
    recalls = [(guess[truth == c] == c).mean() for c in np.unique(truth)]
    return {"macro_recall": float(np.mean(recalls))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--declarations", type=int, default=408)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    set_seed(11)
    rng = random.Random(11)

    train_rows, eval_rows = invent_declarations(args.declarations, rng), invent_declarations(128, rng)
    tokenizer = WordTokenizer([t for t, _ in train_rows], max_length=14)
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, hidden_dim=64, n_layers=1, n_heads=2, max_position_embeddings=16,
        num_labels=len(CHAPTERS), attn_implementation="eager"))
    log.info("%d parameters on %s", sum(p.numel() for p in model.parameters()), torch_xla.device())

    training_args = TrainingArguments(
        output_dir="/tmp/tariff", num_train_epochs=args.epochs, per_device_train_batch_size=16,
        per_device_eval_batch_size=64, learning_rate=3e-3, weight_decay=0.01, lr_scheduler_type="linear",
        warmup_steps=10, eval_strategy="epoch", save_strategy="no", logging_steps=20, report_to=[],
        disable_tqdm=True, seed=11)
    table = EpochTable()
    trainer = FocalTrainer(
        model=model, args=training_args, train_dataset=Declarations(train_rows, tokenizer),
        eval_dataset=Declarations(eval_rows, tokenizer), compute_metrics=macro_recall, callbacks=[table],
        focus=FocusSchedule(epochs=args.epochs))
    trainer.train()
    best = max(table.rows, key=lambda r: r[2])
    print(f"best macro recall {best[2]:.3f} at step {best[0]}")


if __name__ == "__main__":
    main()
