"""State of health of battery cells from charging curves: a LightningModule with a compiled network, trained on the CPU."""
import argparse
import gc
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
log = logging.getLogger("battery")


def charging_curves(cells, points, seed):
    """Voltage, current and temperature over a charge; capacity fades with age and heat."""
    gen = torch.Generator().manual_seed(seed)
    age = torch.rand(cells, 1, generator=gen)
    heat = torch.rand(cells, 1, generator=gen)
    health = 1 - 0.25 * age - 0.1 * age * heat
    t = torch.linspace(0, 1, points).unsqueeze(0)
    voltage = 3.2 + (1 - torch.exp(-4 * t / health)) + 0.01 * torch.randn(cells, points, generator=gen)
    current = torch.sigmoid((health - t) * 12) + 0.02 * torch.randn(cells, points, generator=gen)
    temperature = 0.25 + 0.3 * heat + 0.1 * t + 0.01 * torch.randn(cells, points, generator=gen)
    return TensorDataset(torch.stack([voltage - 3.7, current, temperature], 1), health.squeeze(1))


class Cells(L.LightningDataModule):
    def __init__(self, cells, points, batch_size):
        super().__init__()
        self.cells, self.points, self.batch_size = cells, points, batch_size

    def setup(self, stage=None):
        self.train_set = charging_curves(self.cells, self.points, 1)
        self.val_set = charging_curves(self.batch_size * 4, self.points, 2)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size, drop_last=True)


class ResidualConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + F.gelu(self.norm(self.conv(x)))


class HealthNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(3, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*(ResidualConv(width, d) for d in (1, 2, 4)))
        self.head = nn.Linear(width, 2)

    def forward(self, curves):
        h = self.blocks(self.stem(curves))
        log.debug("curves %s become %s", tuple(curves.shape), tuple(h.shape))
        mean, log_scale = self.head(h.mean(-1)).unbind(1)
        return mean, log_scale.clamp(-5, 1)


class HealthModel(L.LightningModule):
    def __init__(self, width=24, lr=2e-3):
        super().__init__()
        self.net = HealthNet(width)
        self.net.compile(backend="aot_eager")
        self.lr = lr

    def forward(self, curves):
        return self.net(curves)

    def gaussian_nll(self, mean, log_scale, health):
        return (0.5 * ((health - mean) * torch.exp(-log_scale)) ** 2 + log_scale).mean()

    def training_step(self, batch, batch_idx):
        curves, health = batch
        mean, log_scale = self(curves)
        loss = self.gaussian_nll(mean, log_scale, health)
        self.log("train_nll", loss, on_step=True, on_epoch=True)
        error = (mean - health).abs().mean()
        self.log("train_mae", error, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        curves, health = batch
        mean, log_scale = self(curves)
        self.log("val_mae", (mean - health).abs().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return [optimizer], [schedule]


class Housekeeping(L.Callback):
    """Keeps the memory of long runs low."""

    def on_validation_end(self, trainer, module):
        torch.compiler.reset()
        gc.collect()


class EpochTable(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: " + ", ".join(f"{k} {metrics[k]:.4f}" for k in sorted(metrics)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=960)
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    L.seed_everything(4, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=args.epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[Housekeeping(), EpochTable()])
    trainer.fit(HealthModel(), datamodule=Cells(args.cells, args.points, args.batch_size))


if __name__ == "__main__":
    main()
