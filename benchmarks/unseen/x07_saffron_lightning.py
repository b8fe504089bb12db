"""Adulterated saffron from near-infrared spectra: a Lightning module on an XLA device."""

import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

import torch_xla

BANDS = 80


def spectra(count, seed):
    """Two absorption lines of crocin; safflower and turmeric shift the second one and add a shoulder."""
    generator = torch.Generator().manual_seed(seed)
    band = torch.linspace(0, 1, BANDS)

    def line(centre, width, height):
        return height * torch.exp(-(((band - centre) / width) ** 2))

    adulterated = (torch.rand(count, generator=generator) < 0.4).float()
    share = adulterated * (0.1 + 0.4 * torch.rand(count, generator=generator))
    moisture = torch.rand(count, 1, generator=generator)
    centre = 0.62 + 0.05 * share[:, None]
    clean = line(0.3, 0.06, 1.0) + line(centre, 0.08, 0.7) + line(0.8, 0.05, 1.0) * share[:, None]
    noise = 0.08 * torch.randn(count, BANDS, generator=generator)
    return clean + 0.4 * moisture * band + noise, adulterated


class SaffronData(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        training, validation = spectra(128, seed=1), spectra(64, seed=2)
        mean, std = training[0].mean(0), training[0].std(0)
        self.training = TensorDataset((training[0] - mean) / std, training[1])
        self.validation = TensorDataset((validation[0] - mean) / std, validation[1])

    def train_dataloader(self):
        return DataLoader(self.training, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.validation, batch_size=self.batch_size)


class SpectrumNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2 * (BANDS // 4), width),
            nn.LayerNorm(width),
            nn.GELU(),
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        windows = x.unflatten(-1, (-1, 4))
        lines = torch.cat([windows.mean(-1), windows[..., -1] - windows[..., 0]], dim=-1)
        return self.out(self.body(lines)).squeeze(-1)


class SaffronModule(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.lr = lr
        self.net = SpectrumNet()
        self.train_auroc = BinaryAUROC()
        self.val_auroc = BinaryAUROC(thresholds=64)

    def training_step(self, batch, index):
        x, adulterated = batch
        logits = self.net(x + 0.02 * torch.randn_like(x))
        loss = F.binary_cross_entropy_with_logits(logits, adulterated)
        self.train_auroc.update(logits.detach(), adulterated.int())
        self.log("train/loss", loss)
        self.log("train/auroc", self.train_auroc.compute())
        return loss

    def on_train_epoch_end(self):
        self.train_auroc.reset()

    def on_before_optimizer_step(self, optimizer):
        self.log_dict(grad_norm(self.net, norm_type=2))

    def validation_step(self, batch, index):
        x, adulterated = batch
        logits = self.net(x)
        self.val_auroc.update(logits, adulterated.int())
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, adulterated))

    def on_validation_epoch_end(self):
        self.log("val/auroc", self.val_auroc.compute())
        self.val_auroc.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    warnings.filterwarnings("ignore")
    L.seed_everything(21)
    trainer = L.Trainer(
        accelerator="tpu",
        devices=1,
        max_epochs=2,
        logger=CSVLogger("/tmp/saffron", flush_logs_every_n_steps=4),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=2,
    )
    module = SaffronModule()
    began = time.perf_counter()
    trainer.fit(module, datamodule=SaffronData())
    torch_xla.sync()
    print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items() if "grad" not in k})
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
