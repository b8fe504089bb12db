"""ECG beat classification: a LightningModule whose network is compiled, trained on the CPU."""
import argparse
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, width), nn.Sigmoid())

    def forward(self, x):
        return x * self.fc(x.mean(-1))[:, :, None]


class BeatNet(nn.Module):
    def __init__(self, classes, width=16, drop_rate=0.0):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, stride=2, padding=4)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(2))
        self.squeeze = Squeeze(width)
        self.head = nn.Linear(width, classes)
        self.drop_rate = drop_rate
        self.saturated = 0

    def forward(self, x):
        h = torch.relu(self.stem(x))
        for block in self.blocks:
            h = h + torch.relu(block(h))
        h = self.squeeze(h)
        peaks = h.amax(-1)
        self.saturated += int((peaks > 6).sum())
        peaks = nn.functional.dropout(peaks, self.drop_rate, self.training)
        return self.head(peaks)


class Beats(L.LightningModule):
    def __init__(self, classes=5, lr=2e-3):
        super().__init__()
        self.net = BeatNet(classes)
        self.compiled = torch.compile(self.net, backend="aot_eager")
        self.lr = lr
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self.compiled(x), y)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_start(self):
        self.net.drop_rate = min(0.3, 0.05 * self.current_epoch)

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {torch.stack(self.losses).mean():.3f} saturated {self.net.saturated}")
        self.losses.clear()
        self.net.saturated = 0

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=self.lr)


def beats(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    t = torch.linspace(-1, 1, 128)
    width = 0.05 + 0.05 * y[:, None]
    x = torch.exp(-((t / width) ** 2)) + 0.1 * torch.randn(count, 128, generator=generator)
    return TensorDataset(x[:, None], y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    L.seed_everything(1, verbose=False)
    loader = DataLoader(beats(320, 5, 1), args.batch, shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=args.epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Beats(), loader)


if __name__ == "__main__":
    main()
