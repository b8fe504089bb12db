"""Sleep staging from summaries of 30 second epochs, causal in time.

For each night 40 consecutive epochs are described by 16 band powers; a causal transformer
labels every one of them as wake, N1, N2, N3 or REM.  Nights of the same sleeper share a
prototype, kept in a small table of recent embeddings and used as an additional input.
"""
from __future__ import annotations

import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, TensorDataset

STAGES = 5
BANDS = 16
EPOCHS_PER_NIGHT = 40
SLEEPERS = 8


def synthesise(nights: int, seed: int) -> TensorDataset:
    rng = np.random.default_rng(seed)
    signature = np.random.default_rng(0).normal(size=(STAGES, BANDS))
    personal = np.random.default_rng(1).normal(size=(SLEEPERS, BANDS)) * 0.5
    stage = np.zeros((nights, EPOCHS_PER_NIGHT), dtype=np.int64)
    stage[:, 0] = 0
    for t in range(1, EPOCHS_PER_NIGHT):
        move = rng.random(nights) < 0.18
        stage[:, t] = np.where(move, rng.integers(0, STAGES, nights), stage[:, t - 1])
    who = rng.integers(0, SLEEPERS, nights)
    power = signature[stage] + personal[who][:, None] + 0.9 * rng.normal(size=(nights, EPOCHS_PER_NIGHT, BANDS))
    return TensorDataset(torch.tensor(power, dtype=torch.float32), torch.from_numpy(stage), torch.from_numpy(who))


class SleeperTable:
    """The latest embedding of every sleeper that was seen so far."""

    def __init__(self, width: int, device: torch.device):
        self.default = torch.zeros(width, device=device)
        self.latest: dict[int, torch.Tensor] = {}

    def lookup(self, who: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.latest.get(int(w), self.default) for w in who])

    def remember(self, who: torch.Tensor, embedding: torch.Tensor) -> None:
        for w, e in zip(who, embedding.detach()):
            self.latest[int(w)] = e


class Stager(nn.Module):
    def __init__(self, width: int = 24, heads: int = 2, layers: int = 1):
        super().__init__()
        self.inp = nn.Linear(BANDS, width)
        self.position = nn.Parameter(0.02 * torch.randn(EPOCHS_PER_NIGHT, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(EPOCHS_PER_NIGHT))
        self.out = nn.Linear(width, STAGES)

    def forward(self, power: torch.Tensor, prototype: torch.Tensor):
        h = self.inp(power) + self.position + prototype[:, None]
        h = self.encoder(h, mask=self.causal)
        return self.out(h), h.mean(1)


def save(model: nn.Module, folder: str, epoch: int) -> None:
    xm.save(model.state_dict(), os.path.join(folder, f"stager-{epoch}.pt"))


def train_epoch(model, loader, table, optimizer, device) -> float:
    model.train()
    total = torch.zeros((), device=device)
    for power, stage, who in loader:
        power, stage = power.to(device), stage.to(device)
        logits, embedding = model(power, table.lookup(who))
        loss = F.cross_entropy(logits.flatten(0, 1), stage.flatten(), label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        xm.optimizer_step(optimizer)
        table.remember(who, embedding)
        total += loss.detach()
        torch_xla.sync()
    return total.item() / len(loader)


@torch.no_grad()
def accuracy(model, loader, table, device) -> float:
    model.eval()
    hits = torch.zeros((), device=device)
    seen = 0
    for power, stage, who in loader:
        logits, _ = model(power.to(device), table.default.expand(len(who), -1))
        hits += (logits.argmax(-1) == stage.to(device)).sum()
        seen += stage.numel()
        torch_xla.sync()
    return hits.item() / seen


def main() -> None:
    torch.manual_seed(2)
    device = torch_xla.device()
    train = DataLoader(synthesise(40, 3), batch_size=4, shuffle=True, drop_last=True)
    test = DataLoader(synthesise(16, 4), batch_size=16)
    model = Stager().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    table = SleeperTable(24, device)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(2):
            began = time.time()
            loss = train_epoch(model, train, table, optimizer, device)
            save(model, folder, epoch)
            print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy(model, test, table, device):.3f} "
                  f"sleepers {len(table.latest)} ({time.time() - began:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
