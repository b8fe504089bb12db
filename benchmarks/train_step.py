"""A training step of the peers' llama, or MLP, with Adam, and what recording and explaining it costs.

    OMP_NUM_THREADS=1 python benchmarks/train_step.py [--model mlp] [--steps 40] [--rounds 6] [--log /tmp/run.log]

CPU time on one core (the process pins itself), medians. "record" is forward, backward and optimizer (all threads: the
backward pass has its own), "sync" the barrier on its thread, "step" everything including the device's work, which on a
CPU is CPU time too.

Then two processes take turns on that core, a few steps each: one never records, the other does so in every second round
(scopes and a StepTrace around each step). A recording is all there is to diagnosis while the program runs: events, the
lines of what is new, and the sampler of stacks in long gaps. All CPU time counts, of every thread, but for the first
steps of a recording: it begins by reading source lines, tells 50 steps in full and reads what is alive more often than
later, 10 to 20 ms in all. A turn of the one is compared with the other's turn beside it, so that a machine whose speed
changes, or that others use, changes little; and rounds with a recording with those without, so that it does not matter
which of the processes was the faster one to begin with.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import machine
import torch
from llama import BATCH, LENGTH, VOCABULARY, Llama
from torch import nn
from torch.nn import functional as F

import xlaprof
import xlaprof.runtime as xr

#: torch_xla 2.9's ms, where they were measured
PEER = {"llama": {"step": 115.3, "record": 13.4, "sync": 2.1}, "mlp": {"step": 3.88}}


class Plan(NamedTuple):
    """How what recording costs is measured."""

    steps: int  # of a turn
    cold: int  # of these at its beginning: the other process had the caches
    turns: int  # of a round
    settle: int  # steps until a recording is in its stride
    wanted: float  # what it may cost


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


class Turn(NamedTuple):
    """CPU us per step: of the process, and of its threads by name."""

    all: float
    threads: dict[str, float]


def take_turns(asked: Connection, model: str, log: Path) -> None:
    """One of the two processes: does as it is told."""
    settle_down()
    step, plan, recording = make_step(MODELS[model]), PLAN[model], xlaprof.record(log)
    numbers = itertools.count()
    for _ in range(plan.settle):
        step(next(numbers))
    asked.send(None)
    while (order := asked.recv()) != "end":
        if order == "record":
            recording.start()
        elif order == "stop":
            recording.stop()
        for _ in range(plan.settle if order == "record" else plan.cold):
            step(next(numbers))
        count = plan.steps - plan.cold
        threads, start = thread_ns(), time.process_time_ns()
        for _ in range(count):
            step(next(numbers))
        took, after = time.process_time_ns() - start, thread_ns()
        more = {name: (ns - threads.get(name, 0)) / count / 1e3 for name, ns in after.items()}
        asked.send(Turn(took / count / 1e3, more))


def thread_ns() -> dict[str, int]:
    """CPU time that threads had so far, by name; those that Python did not start count as one. Linux only."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, int] = {}
    for task in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            ns = int(task.read_bytes().split()[0])
            name = names.get(int(task.parent.name), "other")
            found[name] = found.get(name, 0) + ns
    return found


class Pair:
    """Both processes."""

    def __init__(self, model: str, log: Path) -> None:
        self._ends = []
        for name in ("never", "every second round"):
            here, there = multiprocessing.get_context("spawn").Pipe()
            task = multiprocessing.get_context("spawn").Process(
                target=take_turns, args=(there, model, log), name=name, daemon=True
            )
            task.start()
            here.recv()
            self._ends.append(here)

    def turn(self) -> tuple[Turn, Turn]:
        never, other = [self._tell(end, "turn") for end in self._ends]
        return never, other

    def switch(self, order: str) -> None:
        self._tell(self._ends[1], order)

    def close(self) -> None:
        for end in self._ends:
            end.send("end")

    def _tell(self, end: Connection, order: str) -> Turn:
        end.send(order)
        return end.recv()


def compare(model: str, rounds: int, log: Path) -> None:
    """Print what recording costs."""
    plan, pair = PLAN[model], Pair(model, log)
    off: list[tuple[Turn, Turn]] = []
    on: list[tuple[Turn, Turn]] = []
    for _ in range(rounds):
        off += [pair.turn() for _ in range(plan.turns)]
        pair.switch("record")
        on += [pair.turn() for _ in range(plan.turns)]
        pair.switch("stop")
    pair.close()
    without, recorded = [[other.all / never.all for never, other in turns] for turns in (off, on)]
    ratio = statistics.median(recorded) / statistics.median(without)
    low, high = interval(lambda: statistics.median(again(recorded)) / statistics.median(again(without)))
    print(
        f"recording on / off: {ratio:.4f} ({low:.4f} to {high:.4f} with 90 % of {len(on)} pairs of turns drawn again; "
        f"wanted: <= {plan.wanted})"
    )
    usual = statistics.median(never.all for never, _ in (*off, *on))
    print(f"{'CPU us a step, median':24}{'off':>8}{'on':>8}{'more':>8}")
    for name in sorted({name for _, other in on for name in other.threads}):
        before, after = [
            statistics.median(other.threads.get(name, 0.0) / never.all * usual for never, other in turns)
            for turns in (off, on)
        ]
        if max(before, after) >= 0.5:
            print(f"{name:24}{before:8.1f}{after:8.1f}{after - before:+8.1f}")


def again(found: list[float]) -> list[float]:
    return random.choices(found, k=len(found))


def interval(estimate: Callable[[], float], times: int = 400) -> tuple[float, float]:
    """What lies between the 5th and the 95th percentile of ``estimate``."""
    cuts = statistics.quantiles([estimate() for _ in range(times)], n=20)
    return cuts[0], cuts[-1]


def settle_down() -> None:
    """One core, one thread."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


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
    compare(args.model, args.rounds, args.log)


if __name__ == "__main__":
    main()
