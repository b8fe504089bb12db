"""Fault codes of harbour cranes: event sequences classified with the Hugging Face Trainer."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, BertPreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

EVENTS = 120
FAULTS = 6


class CraneLog(Dataset):
    """Each sample is one shift of a crane: a run of event codes, ended by a fault."""

    def __init__(self, shifts: int, seed: int, longest: int = 48):
        rng = np.random.default_rng(seed)
        self.rows = []
        habits = np.random.default_rng(0).dirichlet(np.full(EVENTS - 2, 0.1), size=FAULTS)
        for _ in range(shifts):
            fault = int(rng.integers(FAULTS))
            events = rng.choice(EVENTS - 2, size=int(rng.integers(20, longest)), p=habits[fault]) + 2
            self.rows.append({"input_ids": [1, *events.tolist()], "labels": fault})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


@dataclass
class PadToShift:
    width: int = 48

    def __call__(self, rows):
        ids = torch.zeros(len(rows), self.width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            n = len(row["input_ids"])
            ids[i, :n] = torch.tensor(row["input_ids"])
            mask[i, :n] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([r["labels"] for r in rows])}


class CraneClassifier(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.attend = nn.Linear(config.hidden_size, 1)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(config.hidden_size, config.num_labels))
        self.post_init()

    def forward(self, input_ids, attention_mask, labels=None):
        longest = int(attention_mask.sum(dim=1).max())
        input_ids = input_ids[:, :longest]
        attention_mask = attention_mask[:, :longest]
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        score = self.attend(hidden).squeeze(-1).masked_fill(attention_mask == 0, -1e4)
        pooled = torch.einsum("bt,bth->bh", score.softmax(-1), hidden)
        logits = self.head(pooled)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits, labels, label_smoothing=0.05)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Narrator(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d}  loss {float(logs['loss']):.3f}")

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(f"step {state.global_step:4d}  accuracy {metrics['eval_accuracy']:.3f}")


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def training_arguments() -> TrainingArguments:
    return TrainingArguments(
        output_dir="/tmp/crane_trainer",
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        dataloader_drop_last=True,
        learning_rate=1e-3,
        warmup_steps=10,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        torch_compile=True,
        torch_compile_backend="inductor",
        torch_compile_mode="max-autotune",
        seed=11,
    )


def main():
    torch.manual_seed(11)
    config = BertConfig(
        vocab_size=EVENTS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=64, num_labels=FAULTS,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    trainer = Trainer(
        model=CraneClassifier(config),
        args=training_arguments(),
        train_dataset=CraneLog(1600, seed=1),
        eval_dataset=CraneLog(320, seed=2),
        data_collator=PadToShift(),
        compute_metrics=accuracy,
        callbacks=[Narrator()],
    )
    outcome = trainer.train()
    print(f"trained {outcome.global_step} steps in {outcome.metrics['train_runtime']:.1f} s")


if __name__ == "__main__":
    main()
