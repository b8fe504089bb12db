"""Day-ahead electricity load forecasting with dilated convolutions over hourly history."""
import datetime as dt
import time

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 48, 12


def synth_series(hours, seed):
    rng = np.random.default_rng(seed)
    start = dt.datetime(2021, 1, 1)
    stamps = [(start + dt.timedelta(hours=h)).strftime("%Y-%m-%d %H:%M") for h in range(hours)]
    h = np.arange(hours)
    load = 50 + 12 * np.sin(h * 2 * np.pi / 24) + 6 * np.sin(h * 2 * np.pi / 168) + rng.normal(0, 1.5, hours)
    return stamps, load.astype(np.float32)


def calendar(stamp):
    d = dt.datetime.strptime(stamp, "%Y-%m-%d %H:%M")
    day = d.timetuple().tm_yday
    return [
        np.sin(2 * np.pi * d.hour / 24), np.cos(2 * np.pi * d.hour / 24),
        np.sin(2 * np.pi * day / 365), np.cos(2 * np.pi * day / 365),
        float(d.weekday() >= 5),
    ]


class LoadWindows(Dataset):
    def __init__(self, stamps, load, stride=4):
        self.stamps = stamps
        self.mean, self.std = load.mean(), load.std()
        self.load = (load - self.mean) / self.std
        self.starts = range(0, len(load) - HISTORY - HORIZON, stride)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        a = self.starts[i]
        b = a + HISTORY
        past = np.array([calendar(s) for s in self.stamps[a:b]], np.float32)
        future = np.array([calendar(s) for s in self.stamps[b:b + HORIZON]], np.float32)
        x = np.concatenate([self.load[a:b, None], past], 1)
        return x, future, self.load[b:b + HORIZON]


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        dims = [6, hidden, hidden, hidden, hidden]
        self.convs = nn.ModuleList([nn.Conv1d(a, b, 3, dilation=2 ** i) for i, (a, b) in enumerate(zip(dims, dims[1:]))])
        self.norm = nn.LayerNorm(hidden)
        self.decoder = nn.Sequential(nn.Linear(hidden + 5, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x, future):
        h = x.transpose(1, 2)
        for conv in self.convs:
            h = torch.nn.functional.gelu(conv(h))
        h = self.norm(h[:, :, -1])[:, None].expand(-1, future.shape[1], -1)
        return self.decoder(torch.cat([h, future], -1)).squeeze(-1)


class Runner:
    def __init__(self, device, lr=3e-3):
        self.device = device
        self.model = Forecaster().to(device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.loss = nn.HuberLoss()

    def put(self, batch):
        return [b.to(self.device) for b in batch]

    def train_epoch(self, loader):
        total = torch.zeros((), device=self.device)
        self.model.train()
        for batch in loader:
            x, future, y = self.put(batch)
            self.opt.zero_grad(set_to_none=True)
            loss = self.loss(self.model(x, future), y)
            loss.backward()
            self.opt.step()
            total += loss.detach()
            xm.mark_step()
        return total.item() / len(loader)

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        mae = torch.zeros((), device=self.device)
        for batch in loader:
            x, future, y = self.put(batch)
            mae += (self.model(x, future) - y).abs().mean()
        return mae.item() / len(loader)


def main(epochs=3, batch=64):
    torch.manual_seed(0)
    stamps, load = synth_series(24 * 260, 1)
    cut = 24 * 190
    train = DataLoader(LoadWindows(stamps[:cut], load[:cut]), batch, shuffle=True, drop_last=True)
    val = DataLoader(LoadWindows(stamps[cut:], load[cut:], stride=1), batch, drop_last=True)
    runner = Runner(torch.device("xla"))
    best = float("inf")
    for epoch in range(epochs):
        t0 = time.time()
        tr = runner.train_epoch(train)
        t1 = time.time()
        va = runner.validate(val)
        best = min(best, va)
        print(f"epoch {epoch} train {tr:.4f} val {va:.4f} best {best:.4f} ({t1 - t0:.1f}s + {time.time() - t1:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
