# Yield of vineyard blocks from the season's weather up to the day of the forecast. Every cultivar has its own calibration.
import random
import time
from typing import NamedTuple

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

CULTIVARS = ["riesling", "silvaner", "dornfelder", "merlot", "syrah", "grenache", "malbec", "tannat", "barbera",
             "nebbiolo", "furmint", "saperavi"]
WEEKS = 28


class Season(NamedTuple):
    weather: torch.Tensor
    soil: torch.Tensor
    harvest: torch.Tensor


class CultivarBatch(NamedTuple):
    cultivar: str
    weather: torch.Tensor
    weeks: torch.Tensor
    soil: torch.Tensor
    harvest: torch.Tensor


def simulate(cultivar, rng, g):
    weeks = rng.randint(10, WEEKS)
    heat = torch.randn(weeks, generator=g).cumsum(0) * 0.2 + torch.linspace(-1, 1, weeks)
    rain = torch.rand(weeks, generator=g)
    soil = torch.rand(4, generator=g)
    bias = 0.1 * CULTIVARS.index(cultivar)
    harvest = 2 + bias + heat.mean() - 0.8 * (rain[-6:].mean() - 0.5) * soil[0] + 0.1 * torch.randn((), generator=g)
    return Season(torch.stack([heat, rain, heat * rain], dim=1), soil, harvest)


class CultivarLoader:
    """Goes through the cultivars' seasons in random order, one cultivar per batch."""

    def __init__(self, seasons, batch, seed):
        self.loaders = {c: DataLoader(rows, batch_size=batch, shuffle=True, drop_last=True,
                                      collate_fn=lambda rows, c=c: self.collate(c, rows)) for c, rows in seasons.items()}
        self.rng = random.Random(seed)

    @staticmethod
    def collate(cultivar, rows):
        weather = pad_sequence([r.weather for r in rows], batch_first=True)
        full = weather.new_zeros(len(rows), WEEKS, weather.shape[2])
        full[:, : weather.shape[1]] = weather
        return CultivarBatch(cultivar, full, torch.tensor([len(r.weather) for r in rows]),
                             torch.stack([r.soil for r in rows]), torch.stack([r.harvest for r in rows]))

    def __iter__(self):
        batches = [b for loader in self.loaders.values() for b in loader]
        self.rng.shuffle(batches)
        return iter(batches)


class SeasonEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(3, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=True)
                                    for _ in range(2))
        self.week = nn.Parameter(torch.randn(WEEKS, width) * 0.02)

    def forward(self, weather, weeks):
        longest = int(weeks.max())
        h = self.inp(weather[:, :longest]) + self.week[:longest]
        pad = torch.arange(longest, device=weeks.device) >= weeks.unsqueeze(1)
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1)
        return (h * keep).sum(dim=1) / weeks.unsqueeze(1)


class YieldModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = SeasonEncoder(width)
        self.soil = nn.Linear(4, width)
        self.trunk = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.LayerNorm(width))
        self.calibration = nn.ModuleDict({c: nn.Linear(width, 2) for c in CULTIVARS})

    def forward(self, batch):
        h = self.trunk(torch.cat([self.encoder(batch.weather, batch.weeks), self.soil(batch.soil)], dim=-1))
        mean, log_scale = self.calibration[batch.cultivar](h).unbind(dim=-1)
        return mean, log_scale.clamp(-4, 2)


def nll(mean, log_scale, target):
    return (log_scale + 0.5 * ((target - mean) / log_scale.exp()) ** 2).mean()


def main():
    torch.manual_seed(12)
    rng, g = random.Random(12), torch.Generator().manual_seed(12)
    seasons = {c: [simulate(c, rng, g) for _ in range(64)] for c in CULTIVARS}
    loader = CultivarLoader(seasons, batch=16, seed=12)
    model = YieldModel()
    forward = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(8):
        began = time.perf_counter()
        total, worst, batches = torch.zeros(()), torch.zeros(()), 0
        for batch in loader:
            mean, log_scale = forward(batch)
            loss = nll(mean, log_scale, batch.harvest)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
            worst = torch.maximum(worst, (mean.detach() - batch.harvest).abs().max())
            batches += 1
        print(f"epoch {epoch}: nll {total.item() / batches:+.3f}, worst miss {worst.item():.2f} t/ha, "
              f"{batches / (time.perf_counter() - began):.1f} batches/s")


if __name__ == "__main__":
    main()
