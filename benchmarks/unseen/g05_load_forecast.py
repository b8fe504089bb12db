"""Electricity load forecast: a module with its own training_step, driven by a thin xla loop (accelerate)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from accelerate import Accelerator
from accelerate.utils import set_seed

CONTEXT, HORIZON, BATCH, ACCUM, EPOCHS = 72, 24, 32, 2, 3


class MixForecaster(nn.Module):
    def __init__(self, hidden=48, patch=6):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, hidden)
        self.mix = nn.ModuleList(nn.Sequential(
            nn.LayerNorm(hidden), nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))
            for _ in range(3))
        self.time = nn.Linear(CONTEXT // patch, CONTEXT // patch)
        self.out = nn.Linear(hidden * (CONTEXT // patch), HORIZON)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        h = self.embed((x - mean).view(x.shape[0], -1, self.patch))
        h = h + self.time(h.transpose(1, 2)).transpose(1, 2)
        for m in self.mix:
            h = h + m(h)
        return self.out(h.flatten(1)) + mean

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.huber_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return (self(x) - y).abs().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.03, momentum=0.9)


class LoadData:
    def setup(self):
        g = torch.Generator().manual_seed(8)
        t = torch.arange(4000.0)
        s = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168)
        s = s + 0.1 * torch.randn(4000, generator=g)
        w = s.unfold(0, CONTEXT + HORIZON, 1)
        self.train, self.val = w[:3400], w[3500:3800]

    def _loader(self, w, shuffle):
        ds = torch.utils.data.TensorDataset(w[:, :CONTEXT].contiguous(), w[:, CONTEXT:].contiguous())
        return torch.utils.data.DataLoader(ds, batch_size=BATCH, shuffle=shuffle, drop_last=True)

    def train_dataloader(self):
        return self._loader(self.train, True)

    def val_dataloader(self):
        return self._loader(self.val, False)


class XlaLoop:
    def __init__(self, module, data):
        self.device = Accelerator().device
        self.module = module.to(self.device)
        self.data = data
        self.opt = module.configure_optimizers()
        self.loss = torch.zeros((), device=self.device)

    def move(self, batch):
        return tuple(b.to(self.device) for b in batch)

    def epoch(self, n):
        self.module.train()
        updates = 0
        for i, batch in enumerate(self.data.train_dataloader()):
            loss = self.module.training_step(self.move(batch), i) / ACCUM
            loss.backward()
            self.loss += loss.detach()
            if i % ACCUM == ACCUM - 1:
                self.opt.step()
                self.opt.zero_grad()
                updates += 1
                torch_xla.sync()
        mae = self.validate()
        print(f"epoch {n}: loss {self.loss.item() / max(1, updates):.4f} mae {mae:.4f}")
        self.loss.zero_()

    @torch.no_grad()
    def validate(self):
        self.module.eval()
        total, k = torch.zeros((), device=self.device), 0
        for i, batch in enumerate(self.data.val_dataloader()):
            total += self.module.validation_step(self.move(batch), i)
            k += 1
            torch_xla.sync()
        return total.item() / k


if __name__ == "__main__":
    set_seed(8)
    dm = LoadData()
    dm.setup()
    loop = XlaLoop(MixForecaster(), dm)
    for e in range(EPOCHS):
        loop.epoch(e)
