"""Fields of invoices (supplier, date, amount ...) tagged word by word: a small BERT, the HF Trainer, an XLA device."""
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torch_xla
from transformers import (BertConfig, BertForTokenClassification, Trainer, TrainerCallback, TrainingArguments,
                          set_seed)

FIELDS = ["other", "supplier", "date", "number", "amount", "vat"]
VOCAB = 400


@dataclass
class RunConfig:
    invoices: int = 1200
    held_out: int = 96
    batch_size: int = 12
    short: int = 16
    long: int = 64
    grow_every: int = 20
    grow_by: int = 8
    spike: float = 6.0
    lr: float = 2e-3


def invoice(rng):
    """Words of one page in reading order; a field's words come from a part of the vocabulary of its own."""
    words, tags = [], []
    while len(words) < 64:
        field = rng.choices(range(len(FIELDS)), weights=[8, 2, 1, 1, 2, 1])[0]
        for _ in range(rng.randint(1, 3)):
            words.append(rng.randrange(1 + field * 60, 1 + field * 60 + 60))
            tags.append(field)
    return {"words": words[:64], "tags": tags[:64]}


class Pages(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.pages = [invoice(rng) for _ in range(count)]

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        return self.pages[index]


class PageCollator:
    """The first `width` words of each page."""

    def __init__(self, width):
        self.width = width

    def __call__(self, rows):
        ids = torch.tensor([r["words"][: self.width] for r in rows])
        tags = torch.tensor([r["tags"][: self.width] for r in rows])
        return {"input_ids": ids, "labels": tags}


class LongerPages(TrainerCallback):
    """Starts with the heads of the pages and shows more of them as training goes on."""

    def __init__(self, collator, config):
        self.collator, self.config = collator, config

    def on_step_begin(self, args, state, control, **kwargs):
        stage = state.global_step // self.config.grow_every
        self.collator.width = min(self.config.long, self.config.short + stage * self.config.grow_by)


class TaggerTrainer(Trainer):
    """Cross entropy with weights for rare fields; says so when the loss jumps."""

    def __init__(self, *args, spike, **kwargs):
        super().__init__(*args, **kwargs)
        self.weights = torch.tensor([0.4, 1.0, 1.5, 1.5, 1.0, 1.5])
        self.spike, self.spikes = spike, 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        tags = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"])
        weights = self.weights.to(tags.device)
        loss = F.cross_entropy(outputs.logits.flatten(0, 1), tags.flatten(), weight=weights)
        if model.training and loss.detach() > self.spike:
            self.spikes += 1
        return (loss, {"logits": outputs.logits}) if return_outputs else loss


def tag_accuracy(prediction):
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"tag_accuracy": float(right.mean())}


def main():
    config = RunConfig()
    set_seed(21)
    print("device", torch_xla.device())
    model = BertForTokenClassification(BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=config.long, num_labels=len(FIELDS), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager"))
    collator = PageCollator(config.short)
    arguments = TrainingArguments(
        output_dir="/tmp/i01_invoices", per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=config.batch_size, num_train_epochs=1, learning_rate=config.lr,
        lr_scheduler_type="constant", max_grad_norm=0.0, logging_steps=50, save_strategy="no", report_to=[], remove_unused_columns=False,
        disable_tqdm=True, dataloader_drop_last=True, dataloader_pin_memory=False)
    trainer = TaggerTrainer(
        model=model, args=arguments, train_dataset=Pages(config.invoices, 1), eval_dataset=Pages(config.held_out, 2),
        data_collator=collator, compute_metrics=tag_accuracy, callbacks=[LongerPages(collator, config)],
        spike=config.spike)
    result = trainer.train()
    scores = trainer.evaluate()
    print(f"{result.global_step} steps, loss {result.training_loss:.3f}, spikes {trainer.spikes}, "
          f"accuracy {scores['eval_tag_accuracy']:.3f}")


if __name__ == "__main__":
    main()
