"""A training step of the peers' llama, or MLP, with Adam, and what recording and explaining it costs.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--model mlp] [--steps 40] [--rounds 6] [--log /tmp/run.log]

CPU time on one core (the process pins itself), medians. "record" is forward, backward and optimizer (all threads: the
backward pass has its own), "sync" the barrier on its thread, "step" everything including the device's work, which on a
CPU is CPU time too.

Then what a recording costs, as :mod:`_turns` measures it: it is all there is to diagnosis while the program runs,
events, the lines of what is new, and the sampler of stacks in long gaps (scopes and a StepTrace around each step).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import machine
import torch
from _turns import Plan, compare, settle_down
from llama import BATCH, LENGTH, VOCABULARY, Llama
from torch import nn
from torch.nn import functional as F

import xlaprof
import xlaprof.runtime as xr

#: torch_xla 2.9's ms, where they were measured
PEER = {"llama": {"step": 115.3, "record": 13.4, "sync": 2.1}, "mlp": {"step": 3.88}}


PLAN = {"llama": Plan(3, 1, 10, 5, 1.01), "mlp": Plan(24, 4, 25, 300, 1.03)}


def llama() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, its input and the classes wanted."""
    tokens, targets = (torch.randint(0, VOCABULARY, (BATCH, LENGTH)) for _ in range(2))
    return Llama(), tokens, targets.view(-1)


def mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The MLP 64-128-128-10, and a batch of 32."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, torch.rand(32, 64), torch.randint(0, 10, (32,))


MODELS = {"llama": llama, "mlp": mlp}


def make_step(make: Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]]) -> Callable[..., tuple[float, ...]]:
    """A function that takes one step and returns CPU ms: (record, sync, all)."""
    torch.manual_seed(0)
    made, inputs, targets = make()
    model, inputs, targets = made.to("xla"), inputs.to("xla"), targets.to("xla")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    xr.sync(wait=True)

    def step(number: int) -> tuple[float, ...]:
        start = time.process_time()
        with xlaprof.StepTrace("train", step_num=number):
            with xlaprof.Trace("forward"):
                logits = model(inputs)
                loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets)
            with xlaprof.Trace("backward"):
                optimizer.zero_grad()
                loss.backward()
            with xlaprof.Trace("optimizer"):
                optimizer.step()
            recorded = time.process_time()
            barrier = time.thread_time()  # the device begins meanwhile, on threads of its own
            xr.sync()
            synced = time.thread_time() - barrier
            xr.wait_device_ops()
        return (recorded - start) * 1e3, synced * 1e3, (time.process_time() - start) * 1e3

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(PEER), default="llama")
    parser.add_argument("--steps", type=int, default=40, help="measured alone")
    parser.add_argument("--rounds", type=int, default=6, help="with a recording, and as many without")
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "xlaprof-train-step.log")
    args = parser.parse_args()
    settle_down()
    print(machine.tell())
    step = make_step(MODELS[args.model])
    first = time.perf_counter()
    step(0)
    print(f"first step {time.perf_counter() - first:.2f} s (wall, one core), second compiles once more")
    for number in range(1, 4):
        step(number)
    rows = [step(number) for number in range(args.steps)]
    print(f"{'CPU ms, median':16}{'ours':>8}{'torch_xla 2.9':>15}")
    for i, name in enumerate(("record", "sync", "step")):
        print(f"{name:16}{statistics.median(row[i] for row in rows):8.2f}{PEER[args.model].get(name, '-'):>15}")
    compare(partial(make_step, MODELS[args.model]), PLAN[args.model], args.rounds, args.log)


if __name__ == "__main__":
    main()
