"""A discrete VAE (Gumbel softmax codes) for sensor snippets, trained with Lightning."""
import logging
import math

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def snippets(n, length=64, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, length)
    freq = torch.randint(1, 7, (n, 1), generator=g)
    phase = torch.rand(n, 1, generator=g) * 6.28
    return torch.sin(2 * math.pi * freq * t + phase) + 0.1 * torch.randn(n, length, generator=g)


class DiscreteVAE(nn.Module):
    def __init__(self, length=64, slots=8, codes=16, hidden=128):
        super().__init__()
        self.slots, self.codes = slots, codes
        self.tau = 1.0
        self.enc = nn.Sequential(nn.Linear(length, hidden), nn.GELU(), nn.Linear(hidden, slots * codes))
        self.book = nn.Parameter(torch.randn(slots, codes, 16) * 0.1)
        self.dec = nn.Sequential(nn.Linear(slots * 16, hidden), nn.GELU(), nn.Linear(hidden, length))

    def forward(self, x):
        logits = self.enc(x).view(-1, self.slots, self.codes)
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        gumbel = -torch.log(-torch.log(u))
        soft = F.softmax((logits + gumbel) / self.tau, -1)
        z = torch.einsum("bsc,scd->bsd", soft, self.book).flatten(1)
        logp = F.log_softmax(logits, -1)
        kl = (logp.exp() * (logp + math.log(self.codes))).sum((1, 2)).mean()
        return self.dec(z), kl


class Temperature(Callback):
    """Exponential annealing of the relaxation."""

    def __init__(self, rate=2e-3, floor=0.4):
        self.rate, self.floor = rate, floor

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        tau = max(self.floor, math.exp(-self.rate * trainer.global_step))
        module.vae.tau = tau
        module.log("tau", tau)


class Lit(L.LightningModule):
    def __init__(self, lr=1e-3, beta=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.vae = DiscreteVAE()
        self.vae.compile(backend="inductor")

    def shared(self, batch):
        (x,) = batch
        recon, kl = self.vae(x)
        return F.mse_loss(recon, x), kl

    def training_step(self, batch, batch_idx):
        mse, kl = self.shared(batch)
        self.log("train_mse", mse.detach(), on_step=False, on_epoch=True)
        return mse + self.hparams.beta * kl

    def validation_step(self, batch, batch_idx):
        mse, kl = self.shared(batch)
        self.log_dict({"val_mse": mse, "val_kl": kl})

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 1, 0.7)}


def main():
    L.seed_everything(0, verbose=False)
    train = DataLoader(TensorDataset(snippets(6400)), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(snippets(640, seed=1)), batch_size=64)
    trainer = L.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[Temperature()],
    )
    module = Lit()
    trainer.fit(module, train, val)
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
