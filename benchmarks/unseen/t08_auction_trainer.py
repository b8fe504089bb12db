"""Hammer prices of auction lots from their catalogue entries, with transformers' Trainer.

Catalogue entries are short sequences of coded attributes (maker, period, material,
condition, provenance ...).  A small BERT predicts one of six price bands.
"""
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

VOCABULARY = 180
BANDS = 6
PAD = 0
LONGEST = 48


class Lots(Dataset):
    """Entries of 10 to 48 codes; the first one is a marker for the sale."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        value = np.random.default_rng(7).normal(size=VOCABULARY)
        self.entries, scores = [], []
        for _ in range(count):
            n = int(rng.integers(10, LONGEST + 1))
            codes = rng.integers(4, VOCABULARY, n)
            codes[0] = 1 + rng.integers(0, 3)
            self.entries.append(codes.tolist())
            scores.append(value[codes].mean() * np.sqrt(n))
        edges = np.quantile(scores, np.linspace(0, 1, BANDS + 1)[1:-1])
        self.bands = np.digitize(scores, edges)

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, k):
        return {"codes": self.entries[k], "band": int(self.bands[k])}


class CatalogueCollator:
    def __init__(self, length=LONGEST):
        self.length = length

    def __call__(self, lots):
        ids = torch.full((len(lots), self.length), PAD)
        for row, lot in zip(ids, lots):
            row[: len(lot["codes"])] = torch.tensor(lot["codes"])
        return {
            "input_ids": ids,
            "attention_mask": (ids != PAD).long(),
            "labels": torch.tensor([lot["band"] for lot in lots]),
        }


class Learning(TrainerCallback):
    """Keeps the best evaluation."""

    def __init__(self):
        self.best = 0.0

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.best = max(self.best, metrics["eval_accuracy"])
        print(f"step {state.global_step}: accuracy {metrics['eval_accuracy']:.3f} (best {self.best:.3f})", flush=True)


def accuracy(prediction):
    bands = prediction.predictions.argmax(-1)
    return {"accuracy": float((bands == prediction.label_ids).mean()),
            "near": float((abs(bands - prediction.label_ids) <= 1).mean())}


def build_model():
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=LONGEST,
        num_labels=BANDS,
        pad_token_id=PAD,
        attn_implementation="eager",
    )
    return BertForSequenceClassification(config)


def arguments(folder):
    return TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=64,
        num_train_epochs=3,
        learning_rate=1e-3,
        warmup_steps=20,
        weight_decay=0.01,
        torch_compile=True,
        torch_compile_backend="aot_eager",
        debug="underflow_overflow",
        logging_steps=50,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_drop_last=True,
        use_cpu=True,
        remove_unused_columns=False,
        seed=1,
    )


def main():
    set_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build_model(),
            args=arguments(folder),
            train_dataset=Lots(1600, 0),
            eval_dataset=Lots(256, 1),
            data_collator=CatalogueCollator(),
            compute_metrics=accuracy,
            callbacks=[Learning()],
        )
        result = trainer.train()
        final = trainer.evaluate()
    print(f"loss {result.training_loss:.3f}, within one band {final['eval_near']:.3f}, {result.metrics['train_runtime']:.1f} s")


if __name__ == "__main__":
    main()
