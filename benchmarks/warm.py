"""Three lengths compiled when they come, or by ``warm()`` before: the wall time until each was trained on once.

    OMP_NUM_THREADS=1 python benchmarks/warm.py [--rounds 3]

The llama of ``benchmarks/llama.py`` with AdamW, lengths 64, 96 and 128. Each row is a process of its own; rounds
alternate. Printed are the medians of wall and CPU seconds, and of the longest wait inside of the training.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import machine
import torch
from llama import VOCABULARY, Llama
from torch.nn import functional as F

import xlaprof.runtime as xr

LENGTHS = (64, 96, 128)
BATCH = 4
ROWS = {"as they come": "", "warm(...)": "warm", "warm(..., wait=False)": "background"}


def train(how: str) -> None:
    """Print wall seconds, CPU seconds, and the seconds of the longest step."""
    torch.manual_seed(0)
    model = Llama().to("xla")
    optimizer = torch.optim.AdamW(model.parameters())

    def step(tokens: torch.Tensor) -> None:
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
        optimizer.step()
        xr.sync(wait=True)

    batches = [torch.randint(0, VOCABULARY, (BATCH, length + 1)).to("xla") for length in LENGTHS]
    xr.sync(wait=True)
    begin, longest = time.perf_counter(), 0.0
    if how:
        examples = (torch.empty(one.shape, dtype=one.dtype, device="meta") for one in batches)
        xr.warm(step, *examples, wait=how == "warm")
    for batch in batches:
        at = time.perf_counter()
        step(batch)
        longest = max(longest, time.perf_counter() - at)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(time.perf_counter() - begin, used.ru_utime + used.ru_stime, longest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--how", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.how is not None:
        train(options.how)
        return
    print(machine.tell())
    environment = {**os.environ, "XLAPROF_CACHE_DIR": "off"}
    found: dict[str, list[list[float]]] = {name: [] for name in ROWS}
    for _ in range(options.rounds):
        for name, how in ROWS.items():
            command = [sys.executable, __file__, f"--how={how}"]
            out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            found[name].append([float(word) for word in out.split()[-3:]])
    print(f"{'':24}{'wall s':>8}{'CPU s':>8}{'longest step s':>16}")
    for name, rows in found.items():
        wall, cpu, longest = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:24}{wall:8.2f}{cpu:8.2f}{longest:16.2f}")


if __name__ == "__main__":
    main()
