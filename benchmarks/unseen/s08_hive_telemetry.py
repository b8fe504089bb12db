"""Swarm warning from beehive telemetry. Hives carry different sensors, and each apiary reports what it has."""
from __future__ import annotations

import random
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

CHANNELS = {"weight": 24, "hum": 32, "brood_temp": 24, "humidity": 24, "traffic": 16}
ALWAYS = {"weight", "brood_temp"}


class Apiary:
    def __init__(self, name: str, sensors: list[str], hives: int, rng: np.random.Generator):
        self.name, self.sensors = name, sensors
        self.records = []
        for _ in range(hives):
            swarm = rng.random() < 0.4
            drift = 0.8 if swarm else 0.0
            record = {s: (rng.normal(size=CHANNELS[s]).cumsum() * 0.2 + drift * np.linspace(0, 1, CHANNELS[s]))
                      for s in sensors}
            self.records.append((record, float(swarm)))


def build_apiaries(count: int, seed: int) -> list[Apiary]:
    rng = np.random.default_rng(seed)
    optional = [s for s in CHANNELS if s not in ALWAYS]
    apiaries = []
    for i in range(count):
        extra = [s for k, s in enumerate(optional) if (i >> k) & 1]
        sensors = [s for s in CHANNELS if s in ALWAYS or s in extra]
        apiaries.append(Apiary(f"apiary-{i:02d}", sensors, int(rng.integers(3, 6)) * 16, rng))
    return apiaries


def despike(signal: np.ndarray, width: int = 5) -> np.ndarray:
    """Running median that follows the signal with a slow trust factor."""
    out, level = np.empty_like(signal), signal[0]
    for i in range(len(signal)):
        lo, hi = max(0, i - width), min(len(signal), i + width + 1)
        median = np.median(signal[lo:hi])
        trust = 0.3 if abs(signal[i] - median) > 1.0 else 0.9
        level = trust * signal[i] + (1 - trust) * (0.5 * median + 0.5 * level)
        out[i] = level
    return out


class HiveDays(Dataset):
    def __init__(self, apiaries: list[Apiary]):
        self.rows = [(a, record, label) for a in apiaries for record, label in a.records]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int):
        apiary, record, label = self.rows[i]
        sensors = {s: torch.from_numpy(despike(v).astype(np.float32)) for s, v in record.items()}
        return sensors, torch.tensor(label)


class OneApiaryBatches(Sampler):
    """Each batch comes from one apiary, so its hives have the same sensors."""

    def __init__(self, data: HiveDays, batch: int, seed: int):
        self.groups: dict[str, list[int]] = {}
        for i, (apiary, _, _) in enumerate(data.rows):
            self.groups.setdefault(apiary.name, []).append(i)
        self.batch, self.rng = batch, random.Random(seed)

    def __iter__(self):
        batches = []
        for members in self.groups.values():
            self.rng.shuffle(members)
            batches += [members[i:i + self.batch] for i in range(0, len(members) - self.batch + 1, self.batch)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self) -> int:
        return sum(len(m) // self.batch for m in self.groups.values())


class HiveNet(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.encoders = nn.ModuleDict({
            s: nn.Sequential(nn.Linear(n, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width))
            for s, n in CHANNELS.items()})
        self.absent = nn.ParameterDict({s: nn.Parameter(torch.zeros(width)) for s in CHANNELS})
        self.mix = nn.TransformerEncoderLayer(width, 2, width * 2, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, sensors: dict[str, Tensor]) -> Tensor:
        n = sensors["weight"].shape[0]
        tokens = []
        for name, encoder in self.encoders.items():
            if name in sensors:
                tokens.append(encoder(sensors[name]))
            else:
                tokens.append(self.absent[name].expand(n, -1))
        return self.head(self.mix(torch.stack(tokens, dim=1)).mean(dim=1)).squeeze(-1)


class Session:
    def __init__(self, seed: int = 4):
        torch.manual_seed(seed)
        apiaries = build_apiaries(8, seed)
        train = HiveDays(apiaries)
        self.loader = DataLoader(train, batch_sampler=OneApiaryBatches(train, 16, seed))
        self.model = HiveNet()
        self.step_fn = torch.compile(self.model, backend="aot_eager")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-2)

    def epoch(self) -> tuple[float, int]:
        total, count = torch.zeros(()), 0
        for sensors, label in self.loader:
            loss = nn.functional.binary_cross_entropy_with_logits(self.step_fn(sensors), label)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            count += 1
        return total.item() / count, count


def main() -> None:
    session = Session()
    for epoch in range(6):
        began = time.perf_counter()
        loss, batches = session.epoch()
        print(f"epoch {epoch}: {batches} batches, loss {loss:.4f}, {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
