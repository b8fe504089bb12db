"""Fine-tune a classifier with transformers' Trainer: sentences of one length, a smaller last batch, an evaluation."""

import tempfile

import torch
from _session import BACKEND, IS_XLA, finish
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
config = BertConfig(
    vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
dataset = [
    {
        "input_ids": torch.randint(0, 60, (12,)),
        "attention_mask": (torch.arange(12) < 12 - i % 4).long(),
        "labels": torch.tensor(i % 2),
    }
    for i in range(98)
]
args = TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=4, num_train_epochs=1, logging_steps=5, report_to=[],
    save_strategy="no", disable_tqdm=True, use_cpu=not IS_XLA, dataloader_pin_memory=False, torch_compile=bool(BACKEND),
    torch_compile_backend=BACKEND or None,
)  # fmt: skip
trainer = Trainer(BertForSequenceClassification(config), args, train_dataset=dataset, eval_dataset=dataset[:16])
trainer.train()
metrics = trainer.evaluate()
finish([log["loss"] for log in trainer.state.log_history if "loss" in log] + [metrics["eval_loss"]])
