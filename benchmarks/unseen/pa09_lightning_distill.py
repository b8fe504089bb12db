"""Distillation of a wide tabular classifier into a narrow one with Lightning and torch.compile."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_tables(n, dim=24, classes=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g)
    w = torch.randn(dim, classes, generator=torch.Generator().manual_seed(99))
    y = (torch.tanh(x) @ w + 0.3 * torch.randn(n, classes, generator=g)).argmax(-1)
    return TensorDataset(x, y)


class ResidualMLP(nn.Module):
    def __init__(self, dim, width, depth, classes):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(depth))
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


class DistillLoss(nn.Module):
    """Soft cross entropy whose temperature falls over the run."""

    def __init__(self, start=6.0, end=1.5, total=400):
        super().__init__()
        self.start, self.end, self.total = start, end, total
        self.calls = 0

    def forward(self, student, teacher, target):
        self.calls += 1
        tau = self.start + (self.end - self.start) * min(self.calls / self.total, 1.0)
        soft = F.kl_div(F.log_softmax(student / tau, -1), F.softmax(teacher / tau, -1), reduction="batchmean")
        return 0.7 * tau * tau * soft + 0.3 * F.cross_entropy(student, target)


class StudentWithLoss(nn.Module):
    def __init__(self, student, criterion):
        super().__init__()
        self.student, self.criterion = student, criterion

    def forward(self, x, teacher_logits, y):
        logits = self.student(x)
        return self.criterion(logits, teacher_logits, y), logits


class Distiller(L.LightningModule):
    def __init__(self, dim=24, classes=5, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.teacher = ResidualMLP(dim, 96, 2, classes).eval().requires_grad_(False)
        self.core = torch.compile(StudentWithLoss(ResidualMLP(dim, 32, 2, classes), DistillLoss()), backend="aot_eager")

    def training_step(self, batch, batch_idx):
        x, y = batch
        with torch.no_grad():
            t = self.teacher(x)
        loss, logits = self.core(x, t, y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        acc = (self.core.student(x).argmax(-1) == y).float().mean()
        self.log("val_acc", acc)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.core.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class EpochPrinter(Callback):
    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            m = trainer.callback_metrics
            print(f"epoch {trainer.current_epoch}: val_acc {float(m['val_acc']):.3f}")


def main():
    L.seed_everything(7, verbose=False)
    train = DataLoader(make_tables(2048), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(make_tables(512, seed=1), batch_size=128)
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        gradient_clip_val=1.0, callbacks=[EpochPrinter()])
    trainer.fit(Distiller(), train, val)


if __name__ == "__main__":
    main()
