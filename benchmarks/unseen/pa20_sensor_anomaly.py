"""Anomaly detection in machine sensor windows: a denoising autoencoder trained with Lightning."""
import logging
import os
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import BinaryAUROC

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)


class SensorWindows(Dataset):
    def __init__(self, count, seed, anomalies=0.0, length=32, sensors=4):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(length).float()
        freq = 0.2 + 0.05 * torch.arange(sensors).float()[:, None]
        phase = 6.28 * torch.rand(count, 1, 1, generator=g)
        self.x = torch.sin(freq * t + phase) + 0.05 * torch.randn(count, sensors, length, generator=g)
        self.y = (torch.rand(count, generator=g) < anomalies).long()
        bump = torch.exp(-((t - 16) / 2) ** 2)
        self.x[self.y == 1] += 1.2 * bump

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Data(L.LightningDataModule):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def setup(self, stage=None):
        self.train, self.val = SensorWindows(1504, 1), SensorWindows(256, 2, anomalies=0.2)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch)


class AutoEncoder(nn.Module):
    def __init__(self, sensors=4, length=32, width=48, code=6):
        super().__init__()
        n = sensors * length
        self.encode = nn.Sequential(nn.Linear(n, width), nn.ELU(), nn.Dropout(0.05), nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.ELU(), nn.Linear(width, n))
        self.register_buffer("sigma", torch.tensor(0.5))

    def forward(self, x):
        flat = x.flatten(1)
        if self.training:
            flat = flat + self.sigma * torch.randn_like(flat)
        return self.decode(self.encode(flat)).view_as(x)


class LitAutoEncoder(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = AutoEncoder()
        self.compiled = torch.compile(self.net, backend="aot_eager")
        self.auroc = BinaryAUROC()

    def training_step(self, batch, batch_idx):
        x, _ = batch
        loss = F.mse_loss(self.compiled(x), x)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        score = (self.compiled(x) - x).pow(2).mean((1, 2))
        self.auroc.update(score, y)

    def on_validation_epoch_end(self):
        self.log("auroc", self.auroc.compute())
        self.auroc.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.net.parameters(), lr=self.hparams.lr)
        return [opt], [torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)]


class NoiseSchedule(Callback):
    """Less noise from batch to batch."""

    def __init__(self, start, end, total):
        self.start, self.end, self.total = start, end, total

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        done = min(trainer.global_step / self.total, 1.0)
        module.net.sigma.fill_(self.start + (self.end - self.start) * done)


class Reporter(Callback):
    def on_train_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch}: loss {float(m['loss']):.4f} auroc {float(m['auroc']):.3f}")


def main(epochs=5, batch=32):
    L.seed_everything(1, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        keep = ModelCheckpoint(dirpath=folder, monitor="auroc", mode="max", save_top_k=1)
        trainer = L.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False, num_sanity_val_steps=0,
            enable_model_summary=False, gradient_clip_val=1.0,
            callbacks=[keep, NoiseSchedule(0.5, 0.1, 47 * epochs), Reporter()])
        trainer.fit(LitAutoEncoder(), datamodule=Data(batch))
        print("best checkpoint", os.path.basename(keep.best_model_path))


if __name__ == "__main__":
    main()
