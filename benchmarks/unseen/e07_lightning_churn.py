"""Predicts which customers leave; a LightningModule trained on the CPU, its network compiled."""
import argparse
import logging
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", message=".*does not have many workers.*")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
log = logging.getLogger("churn")
PLANS, REGIONS, NUMBERS = 5, 12, 8


class Customers(L.LightningDataModule):
    def __init__(self, rows, batch_size):
        super().__init__()
        self.rows, self.batch_size = rows, batch_size

    def setup(self, stage=None):
        gen = torch.Generator().manual_seed(0)
        n = self.rows
        plan = torch.randint(0, PLANS, (n,), generator=gen)
        region = torch.randint(0, REGIONS, (n,), generator=gen)
        numbers = torch.randn(n, NUMBERS, generator=gen)
        chance = torch.sigmoid(numbers[:, 0] - 0.7 * numbers[:, 1] + 0.5 * (plan == 2) - 0.5)
        leaves = (torch.rand(n, generator=gen) < chance).float()
        cut = n * 4 // 5
        self.train_set = TensorDataset(plan[:cut], region[:cut], numbers[:cut], leaves[:cut])
        self.val_set = TensorDataset(plan[cut:], region[cut:], numbers[cut:], leaves[cut:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size, drop_last=True)


class MixedInputNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.plan, self.region = nn.Embedding(PLANS, 4), nn.Embedding(REGIONS, 6)
        self.body = nn.Sequential(
            nn.Linear(10 + NUMBERS, width), nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
        )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 1)

    def forward(self, plan, region, numbers):
        x = torch.cat([self.plan(plan), self.region(region), numbers], dim=1)
        return self.head(self.drop(self.body(x))).squeeze(-1)


class DropoutAnnealing(L.Callback):
    """Less dropout towards the end of training."""

    def __init__(self, start, steps):
        self.start, self.steps = start, steps

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        module.net.drop.p = self.start * max(0.0, 1 - trainer.global_step / self.steps)


class ChurnModule(L.LightningModule):
    def __init__(self, width=32, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = MixedInputNet(width)
        self.compiled = torch.compile(self.net, backend="aot_eager")

    def training_step(self, batch, batch_idx):
        *inputs, leaves = batch
        loss = F.binary_cross_entropy_with_logits(self.compiled(*inputs), leaves)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        *inputs, leaves = batch
        logits = self.compiled(*inputs)
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, leaves))
        self.log("val_acc", ((logits > 0) == (leaves > 0.5)).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    L.seed_everything(1, verbose=False)

    data = Customers(args.rows, args.batch_size)
    steps = args.epochs * (args.rows * 4 // 5 // args.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu", devices=1, max_epochs=args.epochs, default_root_dir=folder, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            num_sanity_val_steps=0, callbacks=[DropoutAnnealing(0.2, steps)],
        )
        module = ChurnModule()
        trainer.fit(module, datamodule=data)
        log.info("%s", {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
