"""Sequence classification with transformers' Trainer, torch_compile and curriculum dropout."""
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()
VOCAB, LENGTH = 100, 16


class Majority(Dataset):
    """Does the sequence hold more tokens of the upper half of the vocabulary?"""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, VOCAB, (size, LENGTH), generator=g)
        self.labels = ((self.ids >= VOCAB // 2).float().mean(1) > 0.5).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class CurriculumDropout(TrainerCallback):
    """Dropout starts at nothing and grows to its final rate over the run (Morerio et al.)."""

    def __init__(self, final, total):
        self.final, self.total = final, total
        self.modules = None

    def on_train_begin(self, args, state, control, model=None, **kw):
        self.modules = [m for m in model.modules() if isinstance(m, nn.Dropout)]

    def on_step_begin(self, args, state, control, **kw):
        rate = self.final * min(1.0, (state.global_step + 1) / self.total)
        for module in self.modules:
            module.p = rate


class ConsoleLog(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"step {state.global_step}: loss {logs['loss']:.4f}")

    def on_evaluate(self, args, state, control, metrics=None, **kw):
        print(f"step {state.global_step}: accuracy {metrics['eval_accuracy']:.3f}")


def metrics(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


def build():
    return DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=VOCAB, max_position_embeddings=32, n_layers=1, n_heads=4, dim=48, hidden_dim=96,
        dropout=0.1, attention_dropout=0.0, seq_classif_dropout=0.1, num_labels=2, attn_implementation="eager"))


def arguments(folder, steps):
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=3e-3,
        lr_scheduler_type="linear",
        warmup_steps=10,
        logging_steps=50,
        eval_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        torch_compile=True,
        torch_compile_backend="aot_eager",
        dataloader_drop_last=True,
        seed=3,
    )


def main(steps=120):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=build(),
            args=arguments(folder, steps),
            train_dataset=Majority(1024, 1),
            eval_dataset=Majority(256, 2),
            compute_metrics=metrics,
            callbacks=[CurriculumDropout(0.2, steps), ConsoleLog()],
        )
        trainer.train()
        trainer.evaluate()


if __name__ == "__main__":
    main()
