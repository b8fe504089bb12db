"""VAE of church-bell partials (hum, prime, tierce, quint, nominal ...) with Lightning and torch.compile."""
import logging
import time
import warnings

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

IDEAL = np.array([0.5, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0], np.float32)


def cast_bells(n, seed):
    """Partials of bells: the founder's profile decides how they stray from the ideal, age flattens the upper ones."""
    rng = np.random.default_rng(seed)
    profile = rng.normal(0, 0.06, (n, 3)).astype(np.float32)
    mixing = np.random.default_rng(99).normal(0, 1, (3, len(IDEAL))).astype(np.float32)
    age = rng.uniform(0, 1, (n, 1)).astype(np.float32)
    ratios = IDEAL * (1 + profile @ mixing * 0.3) - 0.03 * age * np.linspace(0, 1, len(IDEAL), dtype=np.float32)
    level = np.exp(-IDEAL * rng.uniform(0.2, 0.7, (n, 1))).astype(np.float32)
    strikes = np.concatenate([ratios, level, np.sin(3 * ratios), np.cos(3 * ratios)], 1)
    return torch.from_numpy(strikes + rng.normal(0, 0.01, strikes.shape).astype(np.float32))


class BellVAE(nn.Module):
    def __init__(self, features=32, hidden=96, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, features))
        self.free_bits = 0.05
        self.rehearsals = 0

    def forward(self, strikes):
        mean, log_var = self.encoder(strikes).chunk(2, -1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        rebuilt = self.decoder(latent)
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).clamp_min(self.free_bits).sum(-1)
        beta = min(1.0, 0.1 + 0.15 * self.rehearsals)
        error = (rebuilt - strikes).pow(2).sum(-1)
        return (20 * error + beta * kl).mean(), error.mean(), kl.mean()


class BellModule(pl.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.vae = BellVAE()
        self.compiled = torch.compile(self.vae, backend="aot_eager")
        self.history = []

    def training_step(self, batch, index):
        loss, error, kl = self.compiled(batch[0])
        self.log_dict({"error": error, "kl": kl}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        _, error, _ = self.compiled(batch[0])
        self.log("held_out", error)

    def on_train_epoch_start(self):
        self.began = time.perf_counter()

    def on_train_epoch_end(self):
        self.vae.rehearsals += 1
        metrics = self.trainer.callback_metrics
        self.history.append(float(metrics["held_out"]))
        print(f"epoch {self.current_epoch}: error {metrics['error']:.4f} kl {metrics['kl']:.2f} "
              f"held out {metrics['held_out']:.4f}  ({time.perf_counter() - self.began:.1f} s)")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)}


class KeepBest(pl.Callback):
    """In memory: the weights of the best epoch so far."""

    def __init__(self):
        self.best, self.weights = float("inf"), None

    def on_validation_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        value = trainer.callback_metrics["held_out"].item()
        if value < self.best:
            self.best = value
            self.weights = {k: v.clone() for k, v in module.vae.state_dict().items()}


def main():
    pl.seed_everything(7, verbose=False)
    train = DataLoader(TensorDataset(cast_bells(6400, 0)), batch_size=64, shuffle=True, drop_last=True)
    held_out = DataLoader(TensorDataset(cast_bells(1024, 1)), batch_size=64)
    module, keeper = BellModule(), KeepBest()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=4,
        gradient_clip_val=1.0,
        detect_anomaly=True,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[keeper],
    )
    trainer.fit(module, train, held_out)
    module.vae.load_state_dict(keeper.weights)
    with torch.no_grad():
        bells = module.vae.decoder(torch.randn(4, 6))[:, : len(IDEAL)]
    print("best", round(keeper.best, 4), "| new bells:", [[round(r, 2) for r in bell] for bell in bells.tolist()][:2])


if __name__ == "__main__":
    main()
