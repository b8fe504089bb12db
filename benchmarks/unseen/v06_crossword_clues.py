"""Does this clue fit an answer of this grid's theme? A tiny BERT over letters, trained with the transformers Trainer."""
import math
import random
import shutil
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

import torch_xla.core.xla_model as xm

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD, CLS, SEP = 0, 1, 2
LENGTH = 32
THEMES = ["sea", "kitchen", "orchestra", "garden"]


def themed_word(theme, rng):
    favourite = LETTERS[theme * 6 : theme * 6 + 8]
    return "".join(rng.choice(favourite if rng.random() < 0.6 else LETTERS) for _ in range(rng.randint(4, 9)))


def encode(clue, answer):
    ids = [CLS] + [3 + LETTERS.index(c) for c in clue] + [SEP] + [3 + LETTERS.index(c) for c in answer] + [SEP]
    types = [0] * (len(clue) + 2) + [1] * (len(answer) + 1)
    ids, types = ids[:LENGTH], types[:LENGTH]
    mask = [1] * len(ids)
    fill = LENGTH - len(ids)
    return ids + [PAD] * fill, types + [0] * fill, mask + [0] * fill


class ClueDataset(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            theme = rng.randrange(len(THEMES))
            clue = themed_word(theme, rng) + themed_word(theme, rng)
            other = theme if rng.random() < 0.5 else rng.randrange(len(THEMES))
            ids, types, mask = encode(clue, themed_word(other, rng))
            self.rows.append(dict(input_ids=ids, token_type_ids=types, attention_mask=mask, labels=int(theme == other)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}


class WeightWatcher(TrainerCallback):
    """Follows the size of the first and the last weights and keeps the extremes, to notice when one runs away."""

    def __init__(self, watched=("word_embeddings.weight", "classifier.weight")):
        self.watched = watched
        self.largest = {}
        self.trajectory = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        total = 0.0
        for name, parameter in model.named_parameters():
            if not name.endswith(self.watched):
                continue
            size = parameter.detach().norm().item()
            self.largest[name] = max(size, self.largest.get(name, 0.0))
            total += size**2
        self.trajectory.append(math.sqrt(total))

    def on_train_end(self, args, state, control, **kwargs):
        widest = sorted(self.largest.items(), key=lambda item: -item[1])[:3]
        print("largest weights:", ", ".join(f"{name} {size:.2f}" for name, size in widest))
        print(f"together: {self.trajectory[0]:.2f} -> {self.trajectory[-1]:.2f}")


def accuracy(prediction):
    guess = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": float((guess == prediction.label_ids).mean())}


def build_model():
    config = BertConfig(
        vocab_size=3 + len(LETTERS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        type_vocab_size=2,
        num_labels=2,
        attn_implementation="eager",
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(17)
    folder = tempfile.mkdtemp(prefix="clues-")
    train, held_out = ClueDataset(1280, 0), ClueDataset(256, 1)
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        num_train_epochs=2,
        learning_rate=2e-3,
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=50,
        save_strategy="steps",
        save_steps=10,
        save_total_limit=2,
        eval_strategy="epoch",
        dataloader_drop_last=True,
        report_to=[],
        disable_tqdm=True,
    )
    watcher = WeightWatcher()
    trainer = Trainer(
        model=build_model(),
        args=arguments,
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=collate,
        compute_metrics=accuracy,
        callbacks=[watcher],
    )
    xm.master_print(f"training on {trainer.args.device}")
    try:
        result = trainer.train()
        scores = trainer.evaluate()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    xm.master_print(f"{result.global_step} steps, loss {result.training_loss:.3f}, held out {scores['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
