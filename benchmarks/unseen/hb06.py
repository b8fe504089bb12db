"""A beta-VAE for daily load curves of households (Lightning); readings dropped from the input, ever fewer."""
import logging
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
SLOTS = 96  # quarters of an hour


def load_curves(count, seed=0):
    """Base load, a morning and an evening peak, sometimes a car that charges at night."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 24, SLOTS)
    r = torch.rand(count, 6, generator=g)
    morning = r[:, :1] * torch.exp(-((t - 6 - 2 * r[:, 1:2]) ** 2) / 1.5)
    evening = (0.5 + r[:, 2:3]) * torch.exp(-((t - 17 - 4 * r[:, 3:4]) ** 2) / 4.0)
    car = (r[:, 4:5] > 0.7) * 1.2 * torch.sigmoid(4 * (t - 1)) * torch.sigmoid(4 * (3 + 3 * r[:, 5:] - t))
    noise = 0.04 * torch.randn(count, SLOTS, generator=g)
    return 0.2 + morning + evening + car + noise


class CurveVAE(nn.Module):
    def __init__(self, latent=6, width=192, warmup=400):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=2, padding=3), nn.GELU(), nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv1d(32, 32, 5, stride=2, padding=2), nn.GELU(), nn.Flatten(), nn.Linear(32 * SLOTS // 8, width), nn.GELU())
        self.mean = nn.Linear(width, latent)
        self.logvar = nn.Linear(width, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(),
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, SLOTS))
        self.corrupt = 0.4
        self.beta, self.warmup = 0.01, warmup

    def anneal(self, step):
        self.corrupt = 0.4 * max(0.0, 1 - step / self.warmup)

    def forward(self, x):
        seen = F.dropout(x, self.corrupt, self.training)
        h = self.encoder(seen[:, None])
        mean, logvar = self.mean(h), self.logvar(h).clamp(-8, 4)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean) if self.training else mean
        recon = self.decoder(z)
        mse = F.mse_loss(recon, x)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(dim=1).mean()
        return mse + self.beta * kl, mse, kl


class LoadModule(L.LightningModule):
    def __init__(self, lr=1.5e-3):
        super().__init__()
        self.lr = lr
        self.vae = CurveVAE()
        self.compiled = torch.compile(self.vae, backend="aot_eager")

    def on_train_batch_start(self, batch, batch_idx):
        self.vae.anneal(self.global_step)

    def training_step(self, batch, batch_idx):
        loss, mse, kl = self.compiled(batch[0])
        self.log_dict({"mse": mse.detach(), "kl": kl.detach()}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        _, mse, kl = self.compiled(batch[0])
        self.log_dict({"val_mse": mse, "val_kl": kl})

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)}


class Report(L.Callback):
    def on_train_start(self, trainer, module):
        self.since = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        m = {k: float(v) for k, v in trainer.callback_metrics.items()}  # once per epoch
        print(f"epoch {trainer.current_epoch}: mse {m['mse']:.4f} kl {m['kl']:.2f}  val mse {m['val_mse']:.4f} "
              f"kl {m['val_kl']:.2f}  dropped {module.vae.corrupt:.3f}  {time.perf_counter() - self.since:.1f} s")


def main():
    L.seed_everything(4, verbose=False)
    train = DataLoader(TensorDataset(load_curves(8192)), batch_size=128, shuffle=True, drop_last=True)
    valid = DataLoader(TensorDataset(load_curves(1024, seed=1)), batch_size=128)
    trainer = L.Trainer(max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        gradient_clip_val=1.0, callbacks=[Report()])
    module = LoadModule()
    trainer.fit(module, train, valid)
    with torch.no_grad():
        curves = module.vae.eval().decoder(torch.randn(2000, 6))
    print(f"sampled curves: mean daily use {curves.mean(0).sum().item() / 4:.2f} kWh, "
          f"peak at {curves.mean(0).argmax().item() / 4:.2f} h")


if __name__ == "__main__":
    main()
