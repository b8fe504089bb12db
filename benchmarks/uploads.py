"""What it costs to notice that data comes again: python benchmarks/uploads.py

CPU time of the calling thread for one upload, recorded, with and without the comparison, in turn; the least of several
rounds. A call of JAX's is paced like a fast step, so that each is told by itself, and its share of that step is given.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import xlaprof
import xlaprof.runtime as xr
from xlaprof.recording import recorder

ROUNDS, UPLOADS = 5, 1_000
PACE_NS = 1_000_000  # from one call of JAX's to the next
SIZES = (256, 64 << 10, 4 << 20)  # bytes


def never(place: object, array: object) -> bool:
    return False


def spent(each: Callable[[], Any], log: Path, compare: bool, pace: int) -> float:
    """us of each upload."""
    with xlaprof.record(log):
        assert recorder.active is not None
        if not compare:
            recorder.active.repeats.again = never  # type: ignore[method-assign]
        total = 0
        for _ in range(UPLOADS):
            began, cpu = time.perf_counter_ns(), time.thread_time_ns()
            each()
            total += time.thread_time_ns() - cpu
            while time.perf_counter_ns() - began < pace:
                pass
    return total / UPLOADS / 1e3


def measure(name: str, each: Callable[[], Any], folder: Path, pace: int = 0) -> None:
    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(10):
        each()
    for turn in range(ROUNDS):
        for compare in took:
            took[compare].append(
                spent(
                    each,
                    folder / f"{name[:8]}{turn}{compare}{len(took[compare])}{time.monotonic_ns()}.log",
                    compare,
                    pace,
                )
            )
    without, with_it = (min(took[compare]) for compare in (False, True))
    share = f", {100 * (with_it - without) * 1e3 / pace:.2f} % of a step of {pace / 1e6:.0f} ms" if pace else ""
    print(f"{name}: {without:.1f} us, compared {with_it:.1f} us ({with_it / without:.2f} times{share})")


def main() -> None:
    double = jax.jit(lambda x, table: x + table[0])
    start = jnp.ones(())
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            tensor, array = torch.randn(size // 4), np.random.default_rng(0).normal(size=size // 4).astype(np.float32)
            measure(f"tensor.to('xla'), {size} bytes", lambda tensor=tensor: tensor.to("xla"), Path(folder))
            xr.sync()
            measure(f"a call of JAX's, {size} bytes", lambda array=array: double(start, array), Path(folder), PACE_NS)


if __name__ == "__main__":
    main()
