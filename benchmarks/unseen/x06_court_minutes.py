"""Masked-language pretraining on the minutes of a village court, with transformers' Trainer."""

import random
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed

import torch_xla

PERSONS = "Hans Grete Jost Barbara Ulrich Anna Veit Els Kunz Agnes".split()
TRADES = "miller smith carter innkeeper tanner weaver".split()
MATTERS = ["a strayed heifer", "the boundary of a meadow", "an unpaid debt of corn", "a slander", "the use of the well"]
RULINGS = ["shall pay three shillings", "is to make amends", "swears an oath", "is acquitted", "appeals to the bailiff"]
SPECIAL = ["[PAD]", "[UNK]", "[MASK]"]
LENGTH = 32


def write_minutes(count, rng):
    lines = []
    for _ in range(count):
        plaintiff, defendant = rng.sample(PERSONS, 2)
        lines.append(
            f"Item, {plaintiff} the {rng.choice(TRADES)} complains against {defendant} the {rng.choice(TRADES)} "
            f"for {rng.choice(MATTERS)}; {rng.choice((plaintiff, defendant))} {rng.choice(RULINGS)}."
        )
    return lines


def normalise(word, lexicon):
    """Spelling was free: the nearest entry of the lexicon by edit distance."""
    if len(lexicon) == 0:
        return word
    best, nearest = 99, word
    for entry in lexicon:
        row = list(range(len(entry) + 1))
        for i, letter in enumerate(word, 1):
            previous, row[0] = row[0], i
            for j, other in enumerate(entry, 1):
                previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (letter != other))
        if row[-1] < best:
            best, nearest = row[-1], entry
    return nearest


class Vocabulary:
    def __init__(self, lines):
        self.words = sorted({w for line in lines for w in re.findall(r"\w+", line.lower())})
        self.index = {w: i for i, w in enumerate(SPECIAL + self.words)}

    def __len__(self):
        return len(self.index)

    def encode(self, line):
        ids = [self.index[normalise(w, self.words)] for w in re.findall(r"\w+", line.lower())][:LENGTH]
        return ids + [0] * (LENGTH - len(ids))


class Minutes(Dataset):
    def __init__(self, lines, rng):
        self.lines = [self.misspell(line, rng) for line in lines]

    @staticmethod
    def misspell(line, rng):
        letters = list(line)
        for at in range(len(letters) - 1):
            if letters[at].isalpha() and rng.random() < 0.03:
                letters[at] = rng.choice("eiyuht")
        return "".join(letters)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return {"text": self.lines[index]}


@dataclass
class MaskingCollator:
    vocabulary: Vocabulary
    probability: float = 0.2

    def __call__(self, rows):
        tokens = torch.tensor([self.vocabulary.encode(row["text"]) for row in rows])
        attention = (tokens != 0).long()
        chosen = (torch.rand(tokens.shape) < self.probability) & (tokens != 0)
        labels = tokens.masked_fill(~chosen, -100)
        return {"input_ids": tokens.masked_fill(chosen, 2), "attention_mask": attention, "labels": labels}


class SparseHeadTrainer(Trainer):
    """Computes the vocabulary's logits at the masked positions only, as ModernBERT's sparse prediction does."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"].flatten()
        hidden = model.bert(inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
        masked = labels != -100
        logits = model.cls(hidden.flatten(0, 1)[masked])
        loss = F.cross_entropy(logits, labels[masked])
        return (loss, {"logits": logits}) if return_outputs else loss


def main():
    set_seed(17)
    rng = random.Random(17)
    lines = write_minutes(400, rng)
    vocabulary = Vocabulary(lines)
    dataset = Minutes(lines, rng)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    args = TrainingArguments(
        output_dir="/tmp/court-minutes",
        per_device_train_batch_size=48,
        max_steps=6,
        learning_rate=2e-3,
        logging_steps=3,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    trainer = SparseHeadTrainer(
        model=BertForMaskedLM(config),
        args=args,
        train_dataset=dataset,
        data_collator=MaskingCollator(vocabulary),
    )
    result = trainer.train()
    torch_xla.sync()
    print(f"{len(vocabulary)} words, loss {result.training_loss:.3f}, {result.metrics['train_runtime']:.1f} s")


if __name__ == "__main__":
    main()
