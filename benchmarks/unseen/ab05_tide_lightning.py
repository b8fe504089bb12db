"""Tide gauge forecaster trained by lightning.Trainer, one XLA device."""
import logging
import warnings

import torch_xla
import torch
import torch.nn as nn
import lightning as L
import torch_xla.core.xla_model as xm
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

PAST, AHEAD = 48, 12


class LazyAccelerator(Accelerator):
    def setup_device(self, device):
        pass

    def teardown(self):
        pass

    @staticmethod
    def parse_devices(devices):
        return devices

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device("xla")]

    @staticmethod
    def auto_device_count():
        return 1

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def name():
        return "lazy"

    def get_device_stats(self, device):
        return {}


class Gauges(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(PAST + AHEAD).float()
        phase = torch.rand(n, 1, generator=g) * 6.28
        self.y = torch.sin(t / 6.2 + phase) + 0.4 * torch.sin(t / 3.1 + 2 * phase)
        self.y += 0.05 * torch.randn(n, PAST + AHEAD, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.y[i, :PAST], self.y[i, PAST:]


class StepBarrier(Callback):
    """Ends the device step after each batch; prints the loss now and then."""

    def __init__(self, every=40):
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        xm.mark_step()
        step = trainer.global_step
        if step % self.every == 0:
            print(f"step {step} loss {outputs['loss'].item():.4f}")

    def on_validation_batch_end(self, *args, **kwargs):
        xm.mark_step()


class TideNet(L.LightningModule):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(PAST, hidden), nn.GELU(), nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, AHEAD))
        self.abs_err = []

    def training_step(self, batch, batch_idx):
        past, ahead = batch
        return nn.functional.smooth_l1_loss(self.net(past), ahead)

    def validation_step(self, batch, batch_idx):
        past, ahead = batch
        self.abs_err.append((self.net(past) - ahead).abs().mean())

    def on_validation_epoch_end(self):
        err = torch.stack(self.abs_err).mean()
        self.abs_err.clear()
        print(f"epoch {self.current_epoch} validation error {err.item():.4f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=3e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
        return [opt], [sched]


def main():
    L.seed_everything(1, verbose=False)
    train = DataLoader(Gauges(960, 1), batch_size=24, shuffle=True, drop_last=True)
    valid = DataLoader(Gauges(192, 2), batch_size=24)
    trainer = L.Trainer(
        max_epochs=6, accelerator=LazyAccelerator(),
        strategy=SingleDeviceStrategy(device=torch.device("xla")),
        callbacks=[StepBarrier()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(TideNet(), train, valid)


if __name__ == "__main__":
    main()
