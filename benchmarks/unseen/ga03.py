"""Keyword spotting on synthetic utterances: a LightningModule trained by Lightning's Trainer on the XLA device."""
import logging
import random
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
N_MELS, FRAMES, CLASSES = 32, 64, 8


def make_utterances(n, seed):
    """Log-mel like pictures: each keyword is a chirp of its own slope and start."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    t = np.arange(FRAMES)
    mel = np.arange(N_MELS)[:, None]
    slope = (y % 4 - 1.5) * 0.25
    start = np.where(y < 4, 8, 20)
    centre = start[:, None] + slope[:, None] * (t - 20) + rng.normal(0, 1.0, (n, 1))
    x = np.exp(-0.5 * ((mel[None] - centre[:, None, :]) / 1.8) ** 2) * 2.0
    x += rng.normal(0, 0.8, x.shape)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


class SpecAugment(nn.Module):
    """Blanks one band of frequencies and one stretch of time (Park et al., 2019)."""

    def __init__(self, max_band=6, max_stretch=12, p=0.4, seed=0):
        super().__init__()
        self.max_band, self.max_stretch = max_band, max_stretch
        self.p = p
        self.random = random.Random(seed)

    def forward(self, spec):
        if not self.training or self.random.random() > self.p:
            return spec
        spec = spec.clone()
        band = self.random.randint(1, self.max_band)
        low = self.random.randint(0, N_MELS - band)
        spec[:, low:low + band, :] = 0.0
        stretch = self.random.randint(1, self.max_stretch)
        begin = self.random.randint(0, FRAMES - stretch)
        spec[:, :, begin:begin + stretch] = 0.0
        return spec


class KeywordSpotter(L.LightningModule):
    def __init__(self, width=24, lr=4e-3, label_smoothing=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.augment = SpecAugment()
        self.net = nn.Sequential(
            nn.Conv1d(N_MELS, width, 5, stride=2, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
            nn.AvgPool1d(4), nn.Flatten(), nn.Linear(width * FRAMES // 8, CLASSES),
        )

    def forward(self, spec):
        return self.net(self.augment(spec))

    def training_step(self, batch, _):
        spec, y = batch
        loss = F.cross_entropy(self(spec), y, label_smoothing=self.hparams.label_smoothing)
        self.running = self.running + loss.detach()
        return loss

    def on_train_epoch_start(self):
        self.running = torch.zeros((), device=self.device)

    def on_train_epoch_end(self):
        steps = self.trainer.num_training_batches
        print(f"epoch {self.current_epoch}: train loss {self.running.item() / steps:.4f}")

    def on_validation_epoch_start(self):
        self.right = torch.zeros((), device=self.device)

    def validation_step(self, batch, _):
        spec, y = batch
        self.right = self.right + (self(spec).argmax(-1) == y).sum()

    def on_validation_epoch_end(self):
        print(f"  accuracy {self.right.item() / len(self.trainer.val_dataloaders.dataset):.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class MarkStep(L.Callback):
    """Cuts the graph at the end of each batch, as the TPU strategy does."""

    def on_train_batch_end(self, *args):
        xm.mark_step()

    def on_validation_batch_end(self, *args):
        xm.mark_step()


class LazyDevice(CPUAccelerator):
    """Lets Lightning's single-device strategy run on torch.device("xla")."""

    def setup_device(self, device):
        pass


def main():
    L.seed_everything(4, verbose=False)
    strategy = SingleDeviceStrategy(device=torch.device("xla"), accelerator=LazyDevice())
    trainer = L.Trainer(
        max_epochs=5, strategy=strategy, callbacks=[MarkStep()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    train = DataLoader(make_utterances(384, 0), batch_size=64, shuffle=True, drop_last=True)
    valid = DataLoader(make_utterances(256, 1), batch_size=64)
    trainer.fit(KeywordSpotter(), train, valid)


if __name__ == "__main__":
    main()
