"""Sort clauses of commercial leases into obligation types with a small BERT, trained by transformers' Trainer on XLA."""
import logging
import random
import tempfile

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments,
                          set_seed)

log = logging.getLogger("leases")

TYPES = ["rent", "repair", "insurance", "assignment", "break", "service"]
STEMS = {
    "rent": "rent quarter arrears review uplift index deposit".split(),
    "repair": "repair condition dilapidation roof redecorate reinstate".split(),
    "insurance": "insure premium loss peril underwriter cover".split(),
    "assignment": "assign sublet consent transfer guarantor alienate".split(),
    "break": "terminate notice vacate option expiry surrender".split(),
    "service": "service common lift cleaning charge apportion".split(),
}
FILLER = "the tenant landlord shall not premises term within days of party may unless and any".split()


class Vocabulary:
    def __init__(self):
        words = sorted(set(FILLER) | {w for stem in STEMS.values() for w in stem})
        self.index = {w: i + 2 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, words, length):
        ids = [1] + [self.index[w] for w in words][: length - 1]
        return ids + [0] * (length - len(ids))


class ClauseDataset(Dataset):
    """Clauses with a skewed distribution of types, as in real leases."""

    def __init__(self, size, vocabulary, length=40, seed=0):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(size):
            kind = rng.choices(range(len(TYPES)), weights=[8, 5, 3, 2, 1, 4])[0]
            words = [rng.choice(STEMS[TYPES[kind]]) if rng.random() < 0.3 else rng.choice(FILLER)
                     for _ in range(rng.randint(14, 48))]
            ids = vocabulary.encode(words, length)
            self.rows.append({"input_ids": ids, "attention_mask": [int(i > 0) for i in ids], "labels": kind})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class FocalTrainer(Trainer):
    """Cross entropy at the beginning, focal loss towards the end: the focusing parameter grows from epoch to epoch."""

    def __init__(self, *args, final_focus=2.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.final_focus = final_focus

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        logp = outputs.logits.log_softmax(-1).gather(1, labels[:, None]).squeeze(1)
        progress = int(self.state.epoch or 0.0) / self.args.num_train_epochs
        focus = self.final_focus * progress if model.training else self.final_focus
        modulation = (1.0 - logp.exp()).clamp(min=1e-4) ** focus
        loss = -(modulation * logp).mean()
        return (loss, outputs) if return_outputs else loss


class LayerHealth(TrainerCallback):
    """Remembers how large the gradients of each encoder block are; the worst ratio goes to the log at the end."""

    def __init__(self):
        self.ratios = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        norms = []
        for block in model.bert.encoder.layer:
            squares = [p.grad.pow(2).sum() for p in block.parameters() if p.grad is not None]
            norms.append(torch.stack(squares).sum().sqrt().item())
        self.ratios.append(max(norms) / (min(norms) + 1e-8))

    def on_train_end(self, args, state, control, **kwargs):
        log.info("gradient ratio between blocks: median %.2f, worst %.2f", np.median(self.ratios), max(self.ratios))


def macro_f1(prediction):
    guesses = prediction.predictions.argmax(-1)
    scores = []
    for kind in range(len(TYPES)):
        hit = np.sum((guesses == kind) & (prediction.label_ids == kind))
        denominator = np.sum(guesses == kind) + np.sum(prediction.label_ids == kind)
        scores.append(2 * hit / denominator if denominator else 0.0)
    return {"macro_f1": float(np.mean(scores))}


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    set_seed(11)
    vocabulary = Vocabulary()
    train, held_out = ClauseDataset(160, vocabulary), ClauseDataset(64, vocabulary, seed=1)
    config = BertConfig(vocab_size=len(vocabulary), hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=48, max_position_embeddings=64, num_labels=len(TYPES),
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = BertForSequenceClassification(config)
    nn.init.zeros_(model.classifier.bias)
    log.info("training on %s", xm.xla_device())

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=3, per_device_train_batch_size=16, per_device_eval_batch_size=32,
            learning_rate=2e-3, lr_scheduler_type="cosine", warmup_steps=4, logging_steps=10, eval_strategy="epoch",
            save_strategy="no", report_to=[], disable_tqdm=True, max_grad_norm=1.0, dataloader_drop_last=True)
        trainer = FocalTrainer(model=model, args=arguments, train_dataset=train, eval_dataset=held_out,
                               compute_metrics=macro_f1, callbacks=[LayerHealth()])
        trainer.train()
        log.info("final: %s", trainer.evaluate())


if __name__ == "__main__":
    main()
