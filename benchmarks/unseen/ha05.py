"""Per-residue secondary structure of synthetic proteins with a tiny ESM model and the Hugging Face Trainer."""
import os
import tempfile
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import Dataset
from transformers import EsmConfig, EsmForTokenClassification, Trainer, TrainingArguments, set_seed

AMINO = "ACDEFGHIKLMNPQRSTVWY"
PAD, CLS, EOS = 1, 0, 2
OFFSET = 4
HELIX, SHEET = set("AELMQKRH"), set("VIYCWFT")
MAX_LEN = 128


class Proteins(Dataset):
    """Runs of helix-, sheet- and coil-forming residues; the label is the run's state (H, E or C)."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        helix = np.array([AMINO.index(a) for a in AMINO if a in HELIX])
        sheet = np.array([AMINO.index(a) for a in AMINO if a in SHEET])
        self.items = []
        for _ in range(n):
            ids, labels = [CLS], [-100]
            length = int(rng.integers(30, MAX_LEN - 2))
            while len(ids) - 1 < length:
                state = int(rng.integers(0, 3))
                pool = (helix, sheet, np.arange(20))[state]
                run = int(rng.integers(5, 15))
                residues = np.where(rng.random(run) < 0.85, rng.choice(pool, run), rng.integers(0, 20, run))
                ids += (residues + OFFSET).tolist()
                labels += [state] * run
            self.items.append({"input_ids": ids[:length + 1] + [EOS], "labels": labels[:length + 1] + [-100]})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


@dataclass
class ProteinCollator:
    pad_id: int = PAD
    ignore: int = -100

    def __call__(self, items):
        size = max(len(it["input_ids"]) for it in items)
        ids = torch.full((len(items), size), self.pad_id)
        labels = torch.full((len(items), size), self.ignore)
        for row, it in enumerate(items):
            n = len(it["input_ids"])
            ids[row, :n] = torch.tensor(it["input_ids"])
            labels[row, :n] = torch.tensor(it["labels"])
        return {"input_ids": ids, "attention_mask": (ids != self.pad_id).long(), "labels": labels}


def q3(model, dataset, collate, device, batch=16):
    """Q3 accuracy over the held-out proteins."""
    model.eval()
    right = torch.zeros((), device=device)
    total = torch.zeros((), device=device)
    fixed = dict(input_ids=[PAD] * MAX_LEN, labels=[-100] * MAX_LEN)
    with torch.no_grad():
        for start in range(0, len(dataset), batch):
            group = [dataset[i] for i in range(start, min(start + batch, len(dataset)))]
            features = collate(group + [fixed])       # the dummy row brings every batch to MAX_LEN
            features = {k: v.to(device) for k, v in features.items()}
            pred = model(input_ids=features["input_ids"], attention_mask=features["attention_mask"]).logits.argmax(-1)
            valid = features["labels"] != -100
            right += ((pred == features["labels"]) & valid).sum()
            total += valid.sum()
            xm.mark_step()
    return (right / total).item()


def main():
    set_seed(5)
    config = EsmConfig(
        vocab_size=OFFSET + 20, pad_token_id=PAD, mask_token_id=3, hidden_size=48, num_hidden_layers=1,
        num_attention_heads=4, intermediate_size=96, max_position_embeddings=MAX_LEN + 4,
        position_embedding_type="absolute", num_labels=3, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, token_dropout=False,
    )
    model = EsmForTokenClassification(config)
    train, test = Proteins(224, 1), Proteins(64, 2)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=16, max_steps=14, learning_rate=5e-3,
            lr_scheduler_type="cosine", warmup_steps=2, logging_steps=7, save_strategy="no",
            report_to=[], disable_tqdm=True, dataloader_drop_last=True, seed=5,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train, data_collator=ProteinCollator())
        print("training on", trainer.args.device)
        result = trainer.train()
        print(f"train loss {result.training_loss:.3f}")
        acc = q3(model, test, ProteinCollator(), trainer.args.device)
    print(f"test Q3 {acc:.3f}")
    for entry in trainer.state.log_history[:-1]:
        print({k: round(v, 4) for k, v in entry.items() if k in ("loss", "learning_rate", "step")})


if __name__ == "__main__":
    main()
