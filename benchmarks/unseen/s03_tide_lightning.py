"""Surge residuals at tide gauges: a compiled mixer inside a LightningModule, losses balanced between horizons."""
import math
import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

HORIZONS = (1, 6, 12)
WINDOW = 48
GAUGES = 5


def synthetic_gauges(hours, seed):
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(hours, dtype=torch.float32)
    series = []
    for g in range(GAUGES):
        tide = 1.2 * torch.sin(2 * math.pi * t / 12.42 + g) + 0.3 * torch.sin(2 * math.pi * t / 23.93 - g)
        shocks = torch.randn(hours, generator=generator) * 0.08
        surge = torch.zeros(hours)
        for i in range(1, hours):
            surge[i] = 0.92 * surge[i - 1] + shocks[i]
        series.append(tide + surge)
    return torch.stack(series, dim=1)


def cut_windows(series):
    starts = range(0, len(series) - WINDOW - max(HORIZONS))
    x = torch.stack([series[s:s + WINDOW] for s in starts])
    y = torch.stack([torch.stack([series[s + WINDOW + h - 1] for h in HORIZONS]) for s in starts])
    return TensorDataset(x, y)


class MixerBlock(nn.Module):
    def __init__(self, steps, channels, expand=2):
        super().__init__()
        self.norm_time, self.norm_gauge = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.time = nn.Sequential(nn.Linear(steps, steps * expand), nn.GELU(), nn.Linear(steps * expand, steps))
        self.gauge = nn.Sequential(nn.Linear(channels, channels * 4), nn.GELU(), nn.Linear(channels * 4, channels))

    def forward(self, x):
        x = x + self.time(self.norm_time(x).transpose(1, 2)).transpose(1, 2)
        return x + self.gauge(self.norm_gauge(x))


class SurgeNet(nn.Module):
    def __init__(self, blocks=3, channels=16, memory=20):
        super().__init__()
        self.lift = nn.Linear(GAUGES, channels)
        self.blocks = nn.ModuleList(MixerBlock(WINDOW, channels) for _ in range(blocks))
        self.head = nn.Linear(channels, len(HORIZONS) * GAUGES)
        self.memory = memory
        self.recent = []

    def forward(self, x, y):
        h = self.lift(x)
        for block in self.blocks:
            h = block(h)
        pred = self.head(h.mean(dim=1)).view(-1, len(HORIZONS), GAUGES)
        per_horizon = (pred - y).pow(2).mean(dim=(0, 2))
        if self.training:
            self.recent.append(per_horizon.detach())
            self.recent = self.recent[-self.memory:]
            scale = torch.stack(self.recent).mean(dim=0)
        else:
            scale = torch.ones_like(per_horizon)
        return (per_horizon / scale.clamp_min(1e-4)).mean(), per_horizon


class SurgeModule(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = SurgeNet()
        self.net.compile(backend="aot_eager")

    def training_step(self, batch, _):
        loss, per_horizon = self.net(*batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, _):
        _, per_horizon = self.net(*batch)
        for hours, value in zip(HORIZONS, per_horizon):
            self.log(f"val/mse_{hours}h", value, batch_size=len(batch[0]))
        self.log("val/mse", per_horizon.mean(), batch_size=len(batch[0]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    L.seed_everything(5)
    data = cut_windows(synthetic_gauges(2100, seed=5))
    held_out = 384
    train, val = random_split(data, [len(data) - held_out, held_out])
    loaders = (DataLoader(train, batch_size=32, shuffle=True, drop_last=True), DataLoader(val, batch_size=128))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = L.Trainer(
            max_epochs=5, accelerator="cpu", devices=1, logger=CSVLogger(folder, name="surge"),
            callbacks=[checkpoints, LearningRateMonitor("step")], log_every_n_steps=25, num_sanity_val_steps=0,
            gradient_clip_val=1.0, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(SurgeModule(), *loaders)
        print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items() if k.startswith("val")})


if __name__ == "__main__":
    main()
