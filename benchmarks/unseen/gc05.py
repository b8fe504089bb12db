"""Activity recognition from wearables with missing modalities, in Lightning."""
import logging
import warnings

import lightning as L
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

CHANNELS = {"accel": 3, "gyro": 3, "ppg": 1}
ACTIVITIES, WINDOW, BATCH = 7, 128, 32


class Recordings(Dataset):
    """Sessions: each one was recorded with some of the sensors worn; windows of a session form a batch."""

    def __init__(self, sessions, seed):
        g = torch.Generator().manual_seed(seed)
        proto = torch.Generator().manual_seed(99)
        freq = 1 + 12 * torch.rand(ACTIVITIES, sum(CHANNELS.values()), generator=proto)
        t = torch.linspace(0, 1, WINDOW)
        names = list(CHANNELS)
        self.items = []
        for s in range(sessions):
            y = torch.randint(ACTIVITIES, (BATCH,), generator=g)
            phase = 6.28 * torch.rand(BATCH, freq.size(1), 1, generator=g)
            sig = torch.sin(6.28 * freq[y].unsqueeze(-1) * t + phase)
            sig = sig + 1.2 * torch.randn(sig.shape, generator=g)
            code = int(torch.randint(1, 8, (1,), generator=g)) if s % 3 else 7
            worn, c, batch = [n for i, n in enumerate(names) if code >> i & 1], 0, {}
            for n in names:
                if n in worn:
                    batch[n] = sig[:, c:c + CHANNELS[n]].contiguous()
                c += CHANNELS[n]
            self.items.append((batch, y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Branch(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, width, 7, stride=2, padding=3)
        self.conv2 = nn.Conv1d(width, width, 5, stride=2, padding=2)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        return F.gelu(self.conv2(x)).mean(-1)


class Fusion(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.branches = nn.ModuleDict({n: Branch(c, width) for n, c in CHANNELS.items()})
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 96), nn.GELU(), nn.Linear(96, ACTIVITIES))

    def forward(self, sensors):
        feats = [self.branches[name](x) for name, x in sensors.items()]
        return self.head(torch.stack(feats).mean(0))


class Recogniser(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.lr = lr
        self.net = Fusion()
        self.fast = torch.compile(self.net)
        self.correct, self.count, self.loss_sum = 0, 0, torch.zeros(())

    def training_step(self, batch, _):
        sensors, y = batch
        loss = F.cross_entropy(self.fast(sensors), y, label_smoothing=0.05)
        self.loss_sum += loss.detach()
        return loss

    def on_train_epoch_end(self):
        n = self.trainer.num_training_batches
        print(f"epoch {self.current_epoch}: train loss {self.loss_sum.item() / n:.4f}")
        self.loss_sum.zero_()

    def test_step(self, batch, _):
        sensors, y = batch
        self.correct += (self.net(sensors).argmax(-1) == y).sum()
        self.count += len(y)

    def on_test_epoch_end(self):
        print(f"test accuracy {float(self.correct) / self.count:.4f} on {self.count} windows")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)}


if __name__ == "__main__":
    L.seed_everything(1, verbose=False)
    train = DataLoader(Recordings(90, 1), batch_size=None, shuffle=True)
    test = DataLoader(Recordings(30, 2), batch_size=None)
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    model = Recogniser()
    trainer.fit(model, train)
    trainer.test(model, test, verbose=False)
