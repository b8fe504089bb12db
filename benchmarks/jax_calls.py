"""What a recording adds to a call of a jitted function that finds its program: python benchmarks/jax_calls.py

CPU time of the calling thread, the three measured in turn; the least of several rounds. The loop does nothing else: the
worst case for what is added, and the best for telling calls together.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import xlaprof

ROUNDS, CALLS = 7, 40_000


def main() -> None:
    double = jax.jit(lambda x: x * 2)
    start = jnp.ones(3)

    def each() -> float:
        x, began = start, time.thread_time_ns()
        for _ in range(CALLS):
            x = double(x)
        return (time.thread_time_ns() - began) / CALLS / 1e3

    for _ in range(3):
        double(start)
    off, on, after = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            off.append(each())
            with xlaprof.record(Path(folder) / f"{turn}.log"):
                on.append(each())
            after.append(each())
    print(f"a cached call: {min(off):.2f} us, recorded {min(on):.2f} us, after the recording {min(after):.2f} us")


if __name__ == "__main__":
    main()
