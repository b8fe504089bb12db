"""Fault classification of rotating machines from vibration spectra, as a LightningModule.

The module follows Lightning's conventions; a small loop drives it on the XLA device.
"""
import argparse

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

FAULTS = ("healthy", "imbalance", "misalignment", "bearing", "looseness")
BINS = 128


def spectra(count, rng):
    """Order spectra: peaks at multiples of the shaft speed, pattern by fault."""
    y = rng.integers(0, len(FAULTS), count)
    speed = rng.uniform(7, 9, count)
    bins = np.arange(BINS)
    x = rng.gamma(1.5, 0.15, (count, BINS))
    patterns = {0: [(1, 0.5)], 1: [(1, 1.6)], 2: [(1, 0.6), (2, 1.3)], 3: [(1, 0.5), (3.6, 0.8), (7.2, 0.6)],
                4: [(0.5, 0.6), (1, 0.6), (1.5, 0.6), (2.5, 0.5)]}
    for i in range(count):
        for order, amp in patterns[int(y[i])]:
            size = amp * rng.uniform(0.5, 1.2)
            x[i] += size * np.exp(-0.5 * ((bins - order * speed[i]) / 1.0) ** 2)
    x = np.log1p(4 * x)
    return torch.tensor(x - x.mean(), dtype=torch.float32), torch.tensor(y)


class FaultClassifier(L.LightningModule):
    def __init__(self, width=64, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(BINS, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(FAULTS)))
        self.train_accuracy = MulticlassAccuracy(len(FAULTS), average="macro", validate_args=False)
        self.register_buffer("smooth_accuracy", torch.zeros(()))
        self.val_accuracy = MulticlassAccuracy(len(FAULTS), average="macro", validate_args=False)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.train_accuracy.update(logits.detach(), y)
        self.track((logits.argmax(-1) == y).float().mean())
        return loss

    def track(self, accuracy, keep=0.95):
        """Smoothed batch accuracy, as a progress bar would show it."""
        self.smooth_accuracy = keep * self.smooth_accuracy + (1 - keep) * accuracy.detach()

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_accuracy.update(self(x), y)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)
        return [opt], [torch.optim.lr_scheduler.ExponentialLR(opt, 0.8)]


class Loop:
    def __init__(self, epochs, device):
        self.epochs, self.device = epochs, device

    def batches(self, loader):
        for batch in loader:
            yield [t.to(self.device) for t in batch]

    def fit(self, module, train, valid):
        module.to(self.device)
        (opt,), (schedule,) = module.configure_optimizers()
        for epoch in range(self.epochs):
            module.train()
            total = torch.zeros((), device=self.device)
            for k, batch in enumerate(self.batches(train)):
                opt.zero_grad()
                loss = module.training_step(batch, k)
                loss.backward()
                xm.optimizer_step(opt)
                total += loss.detach()
                xm.mark_step()
            schedule.step()
            module.eval()
            with torch.no_grad():
                for k, batch in enumerate(self.batches(valid)):
                    module.validation_step(batch, k)
                    xm.mark_step()
            print(f"epoch {epoch}: loss {total.item() / len(train):.4f} "
                  f"smoothed accuracy {module.smooth_accuracy.item():.3f} "
                  f"train accuracy {module.train_accuracy.compute().item():.3f} "
                  f"validation accuracy {module.val_accuracy.compute().item():.3f}", flush=True)
            module.train_accuracy.reset()
            module.val_accuracy.reset()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=50)
    args = parser.parse_args()
    L.seed_everything(12, verbose=False)
    rng = np.random.default_rng(12)
    train = DataLoader(TensorDataset(*spectra(5000, rng)), args.batch, shuffle=True, drop_last=True)
    valid = DataLoader(TensorDataset(*spectra(1000, rng)), args.batch)
    module = FaultClassifier()
    Loop(args.epochs, torch_xla.device()).fit(module, train, valid)
    error = MulticlassCalibrationError(len(FAULTS), n_bins=10)        # on the host, once
    x, y = valid.dataset.tensors
    module = module.cpu().eval()
    with torch.no_grad():
        print(f"calibration error {error(module(x).softmax(-1), y).item():.4f}")


if __name__ == "__main__":
    main()
