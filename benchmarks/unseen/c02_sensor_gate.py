"""Anomaly detection in windows of sensor readings: a gated convolutional autoencoder under torch.compile."""
import argparse
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Config:
    channels: int = 6
    window: int = 64
    hidden: int = 24
    batch: int = 32
    clip: float = 3.5


def readings(count, cfg, seed):
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(cfg.window) / 8
    phase = torch.rand(count, cfg.channels, 1, generator=generator) * 6
    wave = torch.sin(t + phase)
    noise = torch.randn(count, cfg.channels, cfg.window, generator=generator) * 0.15
    spikes = (torch.rand(count, 1, 1, generator=generator) > 0.985) * 9.0
    wave[:, :, cfg.window // 2] += spikes[:, :, 0]
    return wave + noise


class Normalizer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.register_buffer("mean", torch.zeros(cfg.channels, 1))
        self.register_buffer("scale", torch.ones(cfg.channels, 1))

    def forward(self, x):
        x = (x - self.mean) * self.scale
        if x.abs().amax() > self.cfg.clip:
            x = torch.tanh(x / self.cfg.clip) * self.cfg.clip
        return x


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value = nn.Conv1d(width, width, 5, padding=2)
        self.gate = nn.Conv1d(width, width, 5, padding=2)

    def forward(self, x):
        return x + self.value(x) * torch.sigmoid(self.gate(x))


class Autoencoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = Normalizer(cfg)
        self.stem = nn.Conv1d(cfg.channels, cfg.hidden, 3, padding=1)
        self.gates = nn.ModuleList(Gate(cfg.hidden) for _ in range(3))
        self.out = nn.Conv1d(cfg.hidden, cfg.channels, 1)
        self.energy = []

    def forward(self, x):
        x = self.norm(x)
        h = self.stem(x)
        for gate in self.gates:
            h = gate(h)
        self.energy.append(h.detach().square().mean().item())
        return self.out(h), x


def train_epoch(model, loader, optimizer):
    total = torch.zeros(())
    for (x,) in loader:
        y, target = model(x)
        loss = nn.functional.smooth_l1_loss(y, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return (total / len(loader)).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    cfg = Config()
    data = TensorDataset(readings(320, cfg, 3))
    loader = DataLoader(data, cfg.batch, shuffle=True, drop_last=True)
    net = Autoencoder(cfg)
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        loss = train_epoch(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.4f} energy {sum(net.energy[-10:]) / 10:.3f} {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
