"""Faults of bearings from vibration windows: a LightningModule whose network is compiled."""
import logging
import math
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
CLASSES = ["healthy", "inner", "outer", "ball"]
WINDOW = 256


class Vibrations(Dataset):
    """Raw recordings; a window is cut and its spectrum taken when it is asked for."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(CLASSES), (count,), generator=g)
        self.starts = torch.randint(0, 256, (count,), generator=g)
        t = torch.arange(512) / 512
        freq = torch.tensor([0.0, 37.0, 61.0, 89.0])[self.labels]
        phase = torch.rand(count, generator=g) * 2 * math.pi
        carrier = torch.sin(2 * math.pi * freq[:, None] * t + phase[:, None])
        self.recordings = 0.4 * carrier + 0.6 * torch.randn(count, 512, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        start = int(self.starts[i])
        window = self.recordings[i, start:start + WINDOW]
        window = (window - window.mean()) / window.std()
        # matched filter against a bank of reference tones
        score = torch.zeros(32)
        for k in range(32):
            s = torch.arange(WINDOW) * (2 * math.pi * (k + 1) * 4 / 512)
            score[k] = torch.hypot((window * s.sin()).mean(), (window * s.cos()).mean())
        return window, score, self.labels[i]


class FaultNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.wave = nn.Sequential(
            nn.Conv1d(1, width, 16, stride=4), nn.ReLU(), nn.Conv1d(width, width, 8, stride=4), nn.ReLU(),
        )
        self.tone = nn.Sequential(nn.Linear(32, width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, len(CLASSES)))

    def forward(self, window, score):
        wave = self.wave(window[:, None]).mean(-1)
        return self.head(torch.cat([wave, self.tone(score * 8)], dim=-1))


class FaultClassifier(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.compile(FaultNet())
        self.accuracy = MulticlassAccuracy(len(CLASSES))

    def training_step(self, batch, _):
        window, score, label = batch
        loss = nn.functional.cross_entropy(self.net(window, score), label)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        window, score, label = batch
        self.accuracy(self.net(window, score), label)
        self.log("accuracy", self.accuracy, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class EpochLine(Callback):
    def on_validation_epoch_end(self, trainer, module):
        metrics = trainer.callback_metrics
        if not trainer.sanity_checking and "accuracy" in metrics:
            print(f"epoch {trainer.current_epoch}: accuracy {metrics['accuracy'].item():.3f}")


def main():
    L.seed_everything(11, verbose=False)
    train = DataLoader(Vibrations(768, 1), batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(Vibrations(192, 2), batch_size=32)
    trainer = L.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, gradient_clip_val=1.0, callbacks=[EpochLine()], num_sanity_val_steps=0,
    )
    module = FaultClassifier()
    trainer.fit(module, train, valid)
    print(f"loss {trainer.callback_metrics['train_loss'].item():.4f}")


if __name__ == "__main__":
    main()
