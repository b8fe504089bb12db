"""What a recording adds to a call of a jitted function that finds its program: python benchmarks/jax_calls.py

CPU time of the calling thread, in one process: without a recording, with a function in JAX's slot that does nothing,
recorded, and after the recording, in turn. Of what is added to a call, the median over the rounds with its confidence
interval (95 %), and the difference of the least: a core that others use makes the same program slower, at times twice
as slow. The loops do nothing else: the worst case for what is added, and the best for telling calls together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import xlaprof
from xlaprof.sources.jax import internals

Loop = Callable[[int], None]


def one() -> Loop:
    double = jax.jit(lambda x: x * 2)
    start = jnp.ones(3)

    def loop(calls: int) -> None:
        x = start
        for _ in range(calls):
            x = double(x)

    return loop


def three() -> Loop:
    double, more, less = jax.jit(lambda x: x * 2), jax.jit(lambda x: x + 1), jax.jit(lambda x: x - 1)
    start = jnp.ones(3)

    def loop(calls: int) -> None:
        x = start
        for _ in range(calls // 3):
            x = double(x)
            x = more(x)
            x = less(x)

    return loop


def leaves() -> Loop:
    first = jax.jit(lambda xs: xs[0])
    xs = [jnp.ones(3) for _ in range(1_000)]

    def loop(calls: int) -> None:
        for _ in range(calls):
            first(xs)

    return loop


LOOPS: dict[str, tuple[Callable[[], Loop], int]] = {
    "one function": (one, 12_000),
    "three in turn": (three, 12_000),
    "1,000 arguments": (leaves, 300),
}


def nothing(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
    """As little as a function of Python's can do."""


def frame(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
    sys._getframe(1)


def place(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
    caller = sys._getframe(1)
    caller.f_lasti  # noqa: B018
    caller.f_code  # noqa: B018


def key(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
    caller = sys._getframe(1)
    KEYS.get((id(fun), id(caller.f_code), caller.f_lasti))


KEYS: dict[tuple[int, int, int], int] = {}


def parts(rounds: int) -> None:
    """What parts of an observed call cost, each with those before it: in short blocks, which little disturbs."""
    slot, loop, calls = internals.post_hook(), one(), 400
    hooks = {
        "no function": None,
        "one that does nothing": nothing,
        "the frame": frame,
        "the place in it": place,
        "a key of it": key,
    }
    took: dict[str, list[float]] = {name: [] for name in hooks}
    loop(100)
    for _ in range(rounds):
        for name, hook in hooks.items():
            slot.set_global(hook)
            began = time.thread_time_ns()
            loop(calls)
            took[name].append((time.thread_time_ns() - began) / calls / 1e3)
    slot.set_global(None)
    off = sorted(took["no function"])
    for name, each in took.items():
        each.sort()
        tenth, base = each[rounds // 10], off[rounds // 10]
        print(f"{name:24s} least {each[0]:.2f} ({each[0] - off[0]:+.2f}), tenth {tenth:.2f} ({tenth - base:+.2f})")


def median_and_interval(values: list[float]) -> tuple[float, float, float]:
    """By order statistics: no assumption on how they are distributed."""
    ordered, count = sorted(values), len(values)
    off = int(0.98 * count**0.5)
    middle = count // 2
    return statistics.median(ordered), ordered[max(0, middle - off)], ordered[min(count - 1, middle + off)]


def measure(loop: Loop, calls: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    slot = internals.post_hook()

    def each() -> float:
        began = time.thread_time_ns()
        loop(calls)
        return (time.thread_time_ns() - began) / calls / 1e3

    took: dict[str, list[float]] = {name: [] for name in ("off", "slot", "on", "after")}
    loop(100)
    for turn in range(rounds):
        took["off"].append(each())
        slot.set_global(nothing)
        took["slot"].append(each())
        slot.set_global(None)
        with xlaprof.record(folder / f"{turn}.log"):
            took["on"].append(each())
        took["after"].append(each())
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--parts", action="store_true", help="what parts of an observed call cost, instead")
    asked = parser.parse_args()
    rounds = asked.rounds
    if asked.parts:
        parts(rounds)
        return
    print("us                  off   of it by: the slot           a recording                 after one")
    for name, (make, calls) in LOOPS.items():
        with tempfile.TemporaryDirectory() as folder:
            took = measure(make(), calls, rounds, Path(folder))
        off = took["off"]
        cells = []
        for kind in ("slot", "on", "after"):
            middle, low, high = median_and_interval([a - b for a, b in zip(took[kind], off, strict=True)])
            least = min(took[kind]) - min(off)
            cells.append(f"{middle:+.2f} ({low:+.2f} to {high:+.2f}), least {least:+.2f}")
        print(f"{name:16s} {min(off):6.2f}  " + "  ".join(cells))


if __name__ == "__main__":
    main()
