"""What compiling a training step of BERT costs, and how much of it is ours: everything but XLA's own compilation.

    OMP_NUM_THREADS=1 python benchmarks/compile_cost.py [--layers 12] [--steps 3] [--profile]

transformers' BERT (masked language model) with AdamW. A training step compiles until the optimizer's state exists on
the device: the first two steps, each another graph. CPU seconds of the whole process, which is pinned to one core: XLA
compiles on several threads, and the ratio should not depend on how many cores there are. Between the steps the device
is waited for, so that its work is in none of the figures.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import time
from collections.abc import Callable
from typing import Any

import jax
import torch
from transformers import BertConfig, BertForMaskedLM

import xlaprof.runtime as xr
from xlaprof.runtime.execution import compiling

os.environ.setdefault("XLAPROF_CACHE_DIR", "off")  # compiling is part of what is measured


def make_step(layers: int, width: int) -> Callable[[], None]:
    """A function that records one training step and cuts it; nothing is pending before the first."""
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    model = BertForMaskedLM(config).to("xla").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, config.vocab_size, (2, 64)).to("xla")
    xr.sync(wait=True)

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        xr.sync()

    return step


def book(spent: dict[str, float], name: str, owner: Any, method: str) -> None:
    """Add the CPU time of every call of ``owner.method`` to ``spent[name]``."""
    call = getattr(owner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] += time.process_time() - start

    setattr(owner, method, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="where our part of the first step goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    spent = dict.fromkeys(("build", "lower", "XLA"), 0.0)
    book(spent, "build", compiling, "build")
    book(spent, "lower", jax.stages.Traced, "lower")
    book(spent, "XLA", jax.stages.Lowered, "compile")
    step = make_step(args.layers, args.width)
    columns = ("total", "XLA", "ours", "record", "trace", "lower", "ours/total")
    print(f"{'CPU s':8}" + "".join(f"{name:>12}" for name in columns))
    for number in range(args.steps):
        profile = cProfile.Profile()
        spent.update(dict.fromkeys(spent, 0.0))
        start = time.process_time()
        if args.profile and not number:
            profile.enable()
        step()
        profile.disable()
        total = time.process_time() - start
        xr.wait_device_ops()
        ours = total - spent["XLA"]
        trace = spent["build"] - spent["lower"] - spent["XLA"]
        parts = (total, spent["XLA"], ours, total - spent["build"], trace, spent["lower"])
        print(f"step {number:<3}" + "".join(f"{seconds:12.2f}" for seconds in parts) + f"{ours / total:12.1%}")
        if args.profile and not number:
            pstats.Stats(profile).sort_stats("tottime").print_stats(50)


if __name__ == "__main__":
    main()
