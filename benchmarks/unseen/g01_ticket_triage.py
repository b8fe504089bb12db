"""Fine-tune a small BERT on support tickets with the HF Trainer, on xla."""
import random

import torch
import torch_xla
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (BertConfig, BertForSequenceClassification, DataCollatorWithPadding,
                          PreTrainedTokenizerFast, Trainer, TrainerCallback, TrainingArguments)

QUEUES = ["billing", "login", "shipping", "refund", "outage"]
WORDS = {
    "billing": "invoice charged card twice vat receipt amount".split(),
    "login": "password reset locked account code email twofactor".split(),
    "shipping": "parcel late courier address tracking depot lost".split(),
    "refund": "return money back wrong size broken item".split(),
    "outage": "error timeout down slow page crash server".split(),
}
FILLER = "hello please i have the my a since yesterday still not help thanks order with on to it was when".split()


def build_tokenizer():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + sorted(set(FILLER) | {w for ws in WORDS.values() for w in ws})
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]",
                                   cls_token="[CLS]", sep_token="[SEP]", model_max_length=64)


class Tickets(torch.utils.data.Dataset):
    def __init__(self, n, tokenizer, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            y = rng.randrange(len(QUEUES))
            size = min(60, int(rng.lognormvariate(2.6, 0.45)) + 4)
            text = " ".join(rng.choice(WORDS[QUEUES[y]] if rng.random() < 0.3 else FILLER) for _ in range(size))
            enc = tokenizer(text, truncation=True)
            self.rows.append({"input_ids": enc["input_ids"], "attention_mask": enc["attention_mask"], "labels": y})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class DriftWatch(TrainerCallback):
    """Keeps how far each weight has moved since the start, for the freezing study."""

    def __init__(self):
        self.start, self.trace = {}, []

    def on_train_begin(self, args, state, control, model=None, **kw):
        self.start = {n: p.detach().clone() for n, p in model.named_parameters() if n.endswith("dense.weight")}

    def on_step_end(self, args, state, control, model=None, **kw):
        now = dict(model.named_parameters())
        self.trace.append({n: float((now[n].detach() - w).norm()) for n, w in self.start.items()})


def main():
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    train = Tickets(16 * 70, tokenizer, seed=1)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=64, num_labels=len(QUEUES), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager"))
    args = TrainingArguments(
        output_dir="/tmp/g01_out", per_device_train_batch_size=16, num_train_epochs=1, max_grad_norm=0.0,
        learning_rate=2e-3, lr_scheduler_type="constant", logging_steps=70, save_strategy="no",
        optim="sgd", report_to=[], disable_tqdm=True, dataloader_drop_last=True, dataloader_pin_memory=False)
    watch = DriftWatch()
    trainer = Trainer(model=model, args=args, train_dataset=train,
                      data_collator=DataCollatorWithPadding(tokenizer), callbacks=[watch])
    out = trainer.train()
    print("device", next(model.parameters()).device, "loss", round(out.training_loss, 4))
    last = watch.trace[-1]
    print("moved most:", max(last, key=last.get))


if __name__ == "__main__":
    main()
