"""Pre-train GPT-2 with transformers' Trainer on texts of many lengths, padded to the longest of each batch."""

import tempfile

import torch
from _session import BACKEND, IS_XLA, finish
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=60, n_positions=32, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)  # fmt: skip
texts = [torch.randint(1, 60, (6 + 7 * i % 11,)) for i in range(96)]


def collate(batch):
    ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


args = TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=24, logging_steps=1, report_to=[], save_strategy="no",
    disable_tqdm=True, use_cpu=not IS_XLA, dataloader_pin_memory=False, remove_unused_columns=False,
    torch_compile=bool(BACKEND), torch_compile_backend=BACKEND or None,
)  # fmt: skip
trainer = Trainer(GPT2LMHeadModel(config), args, data_collator=collate, train_dataset=texts)
trainer.train()
finish([log["loss"] for log in trainer.state.log_history if "loss" in log])
