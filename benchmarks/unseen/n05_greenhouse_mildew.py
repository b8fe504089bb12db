"""Mildew stages (none / spots / spread) from a day of greenhouse climate readings. Lightning on the XLA device."""
import tempfile
import warnings

import lightning as L
import torch
import torch_xla
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

warnings.filterwarnings("ignore")
STAGES = 3
CHANNELS = ("temperature", "humidity", "leaf_wetness", "co2")


def simulate(n, hours=24, seed=0):
    """Long wet nights bring mildew; warm dry afternoons stop it."""
    g = torch.Generator().manual_seed(seed)
    clock = torch.linspace(0, 2 * torch.pi, hours)
    warmth, damp = torch.rand(n, 1, generator=g), torch.rand(n, 1, generator=g)
    temperature = 16 + 6 * warmth - 5 * torch.cos(clock) + torch.randn(n, hours, generator=g)
    humidity = 60 + 30 * damp + 10 * torch.cos(clock) + 2 * torch.randn(n, hours, generator=g)
    wetness = torch.sigmoid((humidity - 84) / 3)
    co2 = 400 + 80 * torch.rand(n, hours, generator=g)
    pressure = wetness.sum(1) - 0.25 * (temperature - 18).clamp(min=0).sum(1) / 2
    stage = torch.bucketize(pressure, torch.quantile(pressure, torch.tensor([0.5, 0.8])))
    x = torch.stack([(temperature - 19) / 5, (humidity - 75) / 12, wetness, (co2 - 440) / 25], dim=1)
    return TensorDataset(x, stage)


class Climate(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        self.train_days, self.val_days = simulate(1152, seed=1), simulate(256, seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_days, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_days, batch_size=64)


class MildewNet(L.LightningModule):
    def __init__(self, width=32, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Conv1d(len(CHANNELS), width, 5, padding=2), nn.GroupNorm(4, width), nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2, stride=2), nn.GroupNorm(4, width), nn.GELU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(width, STAGES)
        self.train_scores = MetricCollection({
            "acc": MulticlassAccuracy(STAGES), "f1": MulticlassF1Score(STAGES)}, prefix="train_")
        self.val_matrix = MulticlassConfusionMatrix(STAGES, validate_args=False)
        self.val_loss = MeanMetric(nan_strategy="disable")

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, _):
        x, stage = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, stage, label_smoothing=0.05)
        self.train_scores.update(logits.detach(), stage)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.train_scores.compute())
        self.train_scores.reset()

    def validation_step(self, batch, _):
        x, stage = batch
        logits = self(x)
        self.val_matrix.update(logits, stage)
        self.val_loss.update(nn.functional.cross_entropy(logits, stage))

    def on_validation_epoch_end(self):
        matrix = self.val_matrix.compute().float()
        recall = matrix.diagonal() / matrix.sum(1).clamp(min=1)
        self.log("val_recall", recall.mean())
        self.log("val_loss", self.val_loss.compute())
        self.val_matrix.reset()
        self.val_loss.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class WeightAverage(Callback):
    """Polyak average of the weights with a warm-up of the decay, swapped in at the end of the fit."""

    def __init__(self, decay=0.98):
        self.decay, self.average = decay, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        weights = [p.detach() for p in module.parameters()]
        if self.average is None:
            self.average = [w.clone() for w in weights]
        step = trainer.global_step
        torch._foreach_lerp_(self.average, weights, 1.0 - min(self.decay, (1 + step) / (10 + step)))

    def on_train_end(self, trainer, module):
        with torch.no_grad():
            for parameter, average in zip(module.parameters(), self.average):
                parameter.copy_(average)


def main():
    L.seed_everything(4, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        logger = CSVLogger(folder, name="mildew", flush_logs_every_n_steps=1)
        trainer = L.Trainer(accelerator="tpu", devices=1, max_epochs=5, logger=logger, log_every_n_steps=1,
                            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
                            num_sanity_val_steps=0, callbacks=[WeightAverage()])
        data, model = Climate(), MildewNet()
        trainer.fit(model, datamodule=data)
        for name, value in trainer.callback_metrics.items():
            print(f"{name:12s} {value.item():.4f}")
        print(trainer.validate(model, datamodule=data, verbose=False))


if __name__ == "__main__":
    main()
