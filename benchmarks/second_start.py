"""The first steps, at the first start and at the second, beside torch.compile (inductor) and eager PyTorch.

    OMP_NUM_THREADS=1 python benchmarks/second_start.py [--only mlp ...]

Each row is a process of its own that trains three steps: eager PyTorch; ``xla`` with an empty folder of programs, then
again with what the first run left there; inductor with an empty cache, then again. Printed are CPU seconds (children's
included: inductor starts compilers) and wall seconds from the first step's begin to the third's end; importing and
building the model are before that. Then the number of programs that were compiled, and of those that were found.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

STEPS = 3


def mlp() -> tuple[nn.Module, Callable[[], tuple[torch.Tensor, ...]], type[torch.optim.Optimizer]]:
    """Eight layers of 256, AdamW."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers), lambda: (torch.randn(32, 256),), torch.optim.AdamW


def generator() -> tuple[nn.Module, Callable[[], tuple[torch.Tensor, ...]], type[torch.optim.Optimizer]]:
    """A small convolutional generator with batch normalization, SGD."""
    layers: list[nn.Module] = []
    for before, after in ((32, 64), (64, 32), (32, 16)):
        layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers), lambda: (torch.randn(4, 32, 4, 4),), torch.optim.SGD


def lstm() -> tuple[nn.Module, Callable[[], tuple[torch.Tensor, ...]], type[torch.optim.Optimizer]]:
    """One LSTM layer over 24 positions, Adam."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(16, 64, batch_first=True), nn.Linear(64, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
            return out

    return Model(), lambda: (torch.randn(8, 24, 16),), torch.optim.Adam


def bert() -> tuple[nn.Module, Callable[[], tuple[torch.Tensor, ...]], type[torch.optim.Optimizer]]:
    """Two layers of transformers' BERT with a head of two classes, AdamW."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,  # so that all modes have one loss
    )  # fmt: skip
    model = BertForSequenceClassification(config)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.model(input_ids=ids).logits
            return logits

    return Model(), lambda: (torch.randint(0, 500, (4, 32)),), torch.optim.AdamW


MODELS = {one.__name__: one for one in (mlp, generator, lstm, bert)}


def train(name: str, mode: str) -> dict[str, float]:
    """Three steps of ``name``; what they took, and how its programs were come by."""
    torch.manual_seed(0)
    model, batch, optimizer_type = MODELS[name]()
    device = "cpu"
    if mode == "xla":
        import xlaprof.runtime as xr

        device = "xla"
    model.to(device)
    optimizer = optimizer_type(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if mode == "inductor" else model
    cpu, wall = _cpu_s(), time.perf_counter()
    for _ in range(STEPS):
        loss = forward(*(one.to(device) for one in batch())).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if mode == "xla":
            xr.sync(wait=True)
    found: dict[str, float] = {"cpu": _cpu_s() - cpu, "wall": time.perf_counter() - wall, "loss": loss.item()}
    if mode == "xla":
        metric = xr.metrics.metric_data("CompileTime")
        found["programs"] = metric[0] if metric else 0
    return found


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def row(name: str, mode: str, caches: Path) -> dict[str, float]:
    """The same in a process of its own, whose caches are in ``caches``."""
    environment = {
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its compilers are children, and no pool that outlives the steps
        **os.environ,
        "XLAPROF_CACHE_DIR": str(caches / "xla"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [sys.executable, __file__, "--one", name, mode]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table, or with ``--one`` what one process found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(train(*options.one)))
        return
    print(f"{'three steps: CPU s (wall s)':30}{'eager':>16}{'xla':>16}{'xla again':>16}{'inductor':>18}{'again':>16}")
    for name in options.only:
        with tempfile.TemporaryDirectory() as caches:
            rows = [row(name, mode, Path(caches)) for mode in ("eager", "xla", "xla", "inductor", "inductor")]
        losses = [one["loss"] for one in rows]
        assert max(losses) - min(losses) < 1e-2 * abs(losses[0]) + 1e-4, losses
        cells = [f"{one['cpu']:.2f} ({one['wall']:.2f})" for one in rows]
        print(
            f"{name:30}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, (16, 16, 16, 18, 16), strict=True))
        )


if __name__ == "__main__":
    main()
