"""Denoising ECG strips with a small 1-D U-Net (lightning), compiled.

Synthetic beats with baseline wander and muscle noise.  Training on fixed windows,
validation once per epoch on longer strips (the clinical length).
"""
import math

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(21, verbose=False)
torch.set_num_threads(1)

WINDOW = 512
STRIP = 1280


def ecg(n, length):
    t = torch.arange(length) / 128.0
    rate = 0.9 + 0.5 * torch.rand(n, 1)
    phase = ((t[None] * rate + torch.rand(n, 1)) % 1.0)
    beat = torch.zeros(n, length)
    for centre, width, amp in [(0.2, 0.03, 0.15), (0.36, 0.012, -0.1), (0.4, 0.012, 1.0),
                               (0.44, 0.012, -0.2), (0.65, 0.05, 0.3)]:
        beat += amp * torch.exp(-((phase - centre) / width) ** 2 / 2)
    wander = 0.3 * torch.sin(2 * math.pi * (0.3 * t[None] + torch.rand(n, 1)))
    noisy = beat + wander + 0.1 * torch.randn(n, length)
    return noisy[:, None], beat[:, None]


def conv(cin, cout):
    return nn.Sequential(nn.Conv1d(cin, cout, 9, padding=4), nn.GroupNorm(4, cout), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.d1, self.d2 = conv(1, c), conv(c, 2 * c)
        self.mid = conv(2 * c, 2 * c)
        self.u2, self.u1 = conv(4 * c, c), conv(2 * c, c)
        self.out = nn.Conv1d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(nn.functional.avg_pool1d(a, 4))
        m = self.mid(nn.functional.avg_pool1d(b, 4))
        m = m.repeat_interleave(4, dim=-1)
        m = self.u2(torch.cat([m, b], 1)).repeat_interleave(4, dim=-1)
        return self.out(self.u1(torch.cat([m, a], 1)))


class Denoiser(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.compile(UNet(), backend="aot_eager", dynamic=False)
        self.train_sum = torch.zeros(())
        self.val_errors = []

    def training_step(self, batch, _):
        noisy, clean = batch
        loss = nn.functional.mse_loss(self.net(noisy), clean)
        self.train_sum += loss.detach()
        return loss

    def on_train_epoch_end(self):
        mean = (self.train_sum / self.trainer.num_training_batches).item()
        self.train_sum.zero_()
        print(f"epoch {self.current_epoch} train mse {mean:.5f}")

    def validation_step(self, batch, _):
        noisy, clean = batch
        self.val_errors.append((self.net(noisy) - clean).square().mean())

    def on_validation_epoch_end(self):
        mse = torch.stack(self.val_errors).mean().item()
        self.val_errors.clear()
        print(f"epoch {self.current_epoch} strip mse {mse:.5f} "
              f"SNR gain {10 * math.log10(0.055 / mse):.1f} dB")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=3e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)
        return [opt], [sched]


def main():
    train = TensorDataset(*ecg(1280, WINDOW))
    strips = TensorDataset(*ecg(128, STRIP))
    trainer = L.Trainer(max_epochs=14, accelerator="cpu", logger=False,
                        enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, num_sanity_val_steps=0)
    model = Denoiser()
    trainer.fit(model,
                DataLoader(train, batch_size=32, shuffle=True, drop_last=True),
                DataLoader(strips, batch_size=32))
    noisy, clean = ecg(32, STRIP)
    with torch.no_grad():
        rest = (model.net(noisy) - clean).abs().amax(-1).squeeze()
    print("worst residual of new strips", [round(v, 3) for v in rest[:4].tolist()])


if __name__ == "__main__":
    main()
