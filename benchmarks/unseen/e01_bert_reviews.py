"""Fine-tunes a small BERT on product reviews (three stars classes) with the Hugging Face Trainer on an XLA device."""
import argparse
import logging
import random
import tempfile

import torch
import torch_xla  # noqa: F401  the Trainer picks the device up by itself
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

log = logging.getLogger("reviews")

WORDS = {
    0: "broke refund awful returned useless slow cheap late".split(),
    1: "fine okay average usable expected standard plain decent".split(),
    2: "love great perfect sturdy fast beautiful excellent happy".split(),
}
FILLER = "the a it was this product and box arrived day my for with again really still after week".split()


class WordTokenizer:
    """Whole words, a fixed vocabulary; enough for synthetic reviews."""

    def __init__(self):
        words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + sorted({w for ws in WORDS.values() for w in ws} | set(FILLER))
        self.ids = {w: i for i, w in enumerate(words)}
        self.pad_token_id = 0

    def __len__(self):
        return len(self.ids)

    def encode(self, text, max_length):
        ids = [self.ids.get(w, 3) for w in text.split()][: max_length - 2]
        return [1] + ids + [2]


class Reviews(Dataset):
    def __init__(self, tokenizer, n, max_length, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            label = rng.randrange(3)
            length = max(4, int(rng.gauss(14, 1.3)))
            words = [rng.choice(WORDS[label]) if rng.random() < 0.3 else rng.choice(FILLER) for _ in range(length)]
            self.rows.append({"input_ids": tokenizer.encode(" ".join(words), max_length), "labels": label})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class ReviewCollator:
    def __init__(self, tokenizer):
        self.pad = tokenizer.pad_token_id

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        return {"input_ids": ids, "attention_mask": (ids != self.pad).long(), "labels": torch.tensor([r["labels"] for r in rows])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=48)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    set_seed(7)

    tokenizer = WordTokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=args.max_length, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    train_set = Reviews(tokenizer, args.rows, args.max_length, seed=1)

    with tempfile.TemporaryDirectory() as folder:
        training_args = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=args.batch_size,
            learning_rate=3e-4,
            warmup_steps=5,
            logging_steps=1,
            dataloader_drop_last=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=training_args, train_dataset=train_set, data_collator=ReviewCollator(tokenizer))
        result = trainer.train()
    log.info("trained %d steps, mean loss %.3f", result.global_step, result.training_loss)


if __name__ == "__main__":
    main()
