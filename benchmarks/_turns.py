"""What a recording costs a step: two processes take turns on one core, a few steps each.

One never records, the other does so in every second round. All CPU time counts, of every thread, but for the first
steps of a recording: it begins by reading source lines, tells 50 steps in full and reads what is alive more often than
later, 10 to 20 ms in all. A turn of the one is compared with the other's turn beside it, so that a machine whose speed
changes, or that others use, changes little; and rounds with a recording with those without, so that it does not matter
which of the processes was the faster one to begin with.

What threads of our own do goes by the clock, not by steps: where others use the machine a step lasts several times as
long as its CPU time, and holds as many more of their turns. So beside the ratio of all CPU time stands that of the
program's own threads, and the share of a core that ours took: on a machine of its own the two are the whole.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import statistics
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

import xlaprof

OURS = "xlaprof "  # begins the names of our threads
#: takes one step, of the number that it is given
Step = Callable[[int], Any]


class Plan(NamedTuple):
    """How what recording costs is measured."""

    steps: int  # of a turn
    cold: int  # of these at its beginning: the other process had the caches
    turns: int  # of a round
    settle: int  # steps until a recording is in its stride
    wanted: float  # what it may cost


class Turn(NamedTuple):
    """us per step: CPU time of the process and of its threads by name, and the clock's."""

    all: float
    threads: dict[str, float]
    wall: float

    @property
    def ours(self) -> float:
        return sum(us for name, us in self.threads.items() if name.startswith(OURS))


def settle_down() -> None:
    """One core, one thread."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def take_turns(asked: Connection, make: Callable[[], Step], plan: Plan, log: Path) -> None:
    """One of the two processes: does as it is told."""
    settle_down()
    step, recording = make(), xlaprof.record(log)
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
        threads, start, began = thread_ns(), time.process_time_ns(), time.perf_counter_ns()
        for _ in range(count):
            step(next(numbers))
        took, wall, after = time.process_time_ns() - start, time.perf_counter_ns() - began, thread_ns()
        more = {name: (ns - threads.get(name, 0)) / count / 1e3 for name, ns in after.items()}
        asked.send(Turn(took / count / 1e3, more, wall / count / 1e3))


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

    def __init__(self, make: Callable[[], Step], plan: Plan, log: Path) -> None:
        self._ends = []
        for name in ("never", "every second round"):
            here, there = multiprocessing.get_context("spawn").Pipe()
            task = multiprocessing.get_context("spawn").Process(
                target=take_turns, args=(there, make, plan, log), name=name, daemon=True
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


def compare(make: Callable[[], Step], plan: Plan, rounds: int, log: Path) -> None:
    """Print what recording costs. ``make`` can be sent to another process: a function of a module, or a partial one."""
    pair = Pair(make, plan, log)
    off: list[tuple[Turn, Turn]] = []
    on: list[tuple[Turn, Turn]] = []
    for _ in range(rounds):
        off += [pair.turn() for _ in range(plan.turns)]
        pair.switch("record")
        on += [pair.turn() for _ in range(plan.turns)]
        pair.switch("stop")
    pair.close()
    ratio, low, high = more(off, on, lambda turn: turn.all)
    print(
        f"recording on / off: {ratio:.4f} ({low:.4f} to {high:.4f} with 90 % of {len(on)} pairs of turns drawn again; "
        f"wanted: <= {plan.wanted})"
    )
    program, low, high = more(off, on, lambda turn: turn.all - turn.ours)
    ours = sum(other.ours for _, other in on) / sum(other.wall for _, other in on)
    slow = statistics.median(other.wall / other.all for _, other in on)
    least = [min(other.all - other.ours for _, other in t) / min(never.all for never, _ in t) for t in (on, off)]
    print(
        f"its own threads {program:.4f} ({low:.4f} to {high:.4f}; by the least of each {least[0] / least[1]:.4f}), "
        f"ours {ours:.2%} of a core: {program + ours:.4f} where steps have it to themselves (here each lasts "
        f"{slow:.1f} times its CPU time)"
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


def more(
    off: list[tuple[Turn, Turn]], on: list[tuple[Turn, Turn]], of: Callable[[Turn], float]
) -> tuple[float, float, float]:
    """What a recording multiplies ``of`` a turn by, and between what that lies."""
    without, recorded = [[of(other) / of(never) for never, other in turns] for turns in (off, on)]
    ratio = statistics.median(recorded) / statistics.median(without)
    return ratio, *interval(lambda: statistics.median(again(recorded)) / statistics.median(again(without)))


def again(found: list[float]) -> list[float]:
    return random.choices(found, k=len(found))


def interval(estimate: Callable[[], float], times: int = 400) -> tuple[float, float]:
    """What lies between the 5th and the 95th percentile of ``estimate``."""
    cuts = statistics.quantiles([estimate() for _ in range(times)], n=20)
    return cuts[0], cuts[-1]
