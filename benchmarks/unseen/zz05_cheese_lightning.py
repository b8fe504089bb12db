"""Predicts the ripeness of cheese wheels from tapping sounds, trained with Lightning."""
import copy
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanAbsoluteError

warnings.filterwarnings("ignore")
BANDS, FRAMES = 24, 40


def tap_recordings(count: int, seed: int):
    g = torch.Generator().manual_seed(seed)
    weeks = torch.rand(count, 1, 1, generator=g) * 60 + 4
    band = torch.arange(BANDS).view(1, -1, 1) / BANDS
    frame = torch.arange(FRAMES).view(1, 1, -1) / FRAMES
    decay = torch.exp(-frame * (2 + 80 / weeks))
    spectrum = torch.exp(-((band - 0.2 - weeks / 120) ** 2) / 0.02)
    return spectrum * decay + 0.05 * torch.randn(count, BANDS, FRAMES, generator=g), weeks.flatten() / 60


class Gate(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // 4)
        self.expand = nn.Linear(channels // 4, channels)

    def forward(self, x):
        weight = self.expand(torch.relu(self.squeeze(x.mean(-1)))).sigmoid()
        return x * weight.unsqueeze(-1)


class TapNet(nn.Module):
    def __init__(self, width: int = 48, depth: int = 2):
        super().__init__()
        self.stem = nn.Conv1d(BANDS, width, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, width), nn.Conv1d(width, width, 3, padding=1), nn.GELU(), Gate(width))
            for _ in range(depth)
        )
        self.dropout = nn.Dropout(0.0)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(self.dropout(x.amax(-1))).squeeze(-1)


class RipenessModule(L.LightningModule):
    def __init__(self, lr: float = 2e-3, decay: float = 0.98, final_dropout: float = 0.3):
        super().__init__()
        self.save_hyperparameters()
        self.net = TapNet()
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.forward_net = torch.compile(self.net)
        self.judge = None
        self.error = MeanAbsoluteError()

    def on_train_epoch_start(self):
        progress = self.current_epoch / max(self.trainer.max_epochs - 1, 1)
        self.net.dropout.p = self.hparams.final_dropout * progress

    def training_step(self, batch, _):
        taps, ripeness = batch
        loss = nn.functional.smooth_l1_loss(self.forward_net(taps), ripeness)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_end(self, *_):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.net.parameters()), 1 - self.hparams.decay)

    def on_validation_epoch_start(self):
        snapshot = copy.deepcopy(self.average).eval()
        self.judge = torch.compile(snapshot)

    def validation_step(self, batch, _):
        taps, ripeness = batch
        self.error.update(self.judge(taps), ripeness)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            weeks = self.error.compute().item() * 60
            print(f"epoch {self.current_epoch}: {weeks:.2f} weeks off, loss {self.trainer.callback_metrics.get('loss', 0):.4f}")
        self.error.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def loaders(batch: int):
    train = DataLoader(TensorDataset(*tap_recordings(1280, 1)), batch_size=batch, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(*tap_recordings(256, 2)), batch_size=batch)
    return train, held


def main():
    L.seed_everything(5)
    module = RipenessModule()
    trainer = L.Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(module, *loaders(batch=64))


if __name__ == "__main__":
    main()
