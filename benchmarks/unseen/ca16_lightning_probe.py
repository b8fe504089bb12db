"""Transformer encoder for turbine sensor windows, trained by Lightning."""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
log = logging.getLogger("turbine")


def sensor_windows(n, length=32, channels=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, length, channels, generator=g).cumsum(1) * 0.1
    y = (x[:, -8:, 0].mean(1) > x[:, :8, 1].mean(1)).long()
    return TensorDataset(x, y)


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if score.abs().max() > 50:
            log.warning("attention scores saturate")
            score = 50 * torch.tanh(score / 50)
        return self.proj((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))

    def forward(self, x):
        x = x + self.attend(self.n1(x))
        return x + self.mlp(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, channels=6, width=32, depth=2, heads=4, length=32):
        super().__init__()
        self.inp = nn.Linear(channels, width)
        self.pos = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        h = self.inp(x) + self.pos
        for layer in self.layers:
            h = layer(h)
        return self.head(h.mean(1))


class Probe(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Encoder()
        self.net.compile(backend="aot_eager")

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_acc", (self.net(x).argmax(-1) == y).float().mean())

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=2e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 3)}


class EpochReport(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch} loss {m['train_loss']:.4f} acc {m['val_acc']:.3f}", flush=True)


def main():
    L.seed_everything(0, verbose=False)
    train = DataLoader(sensor_windows(960), batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(sensor_windows(128, seed=1), batch_size=32)
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False,
                        num_sanity_val_steps=0, callbacks=[EpochReport()])
    trainer.fit(Probe(), train, valid)


if __name__ == "__main__":
    main()
