"""How busy JAX's device was, by a recording and by JAX's own profiler: python benchmarks/jax_busy.py

Phases of known character run within a recording, and each within a profile. The share of the time in which the device
was busy is compared: by the recording's executions, and by what the profiler saw on the device's streams (on a GPU).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import xlaprof
from xlaprof.events import Execute, TransferFromDevice, TransferToDevice

ON_HOST = jax.default_backend() == "cpu"
SIDE, STEPS = (256, 10) if ON_HOST else (4096, 60)


class Phase(NamedTuple):
    """What ran from ``begin`` to ``end`` (ns), and the profiler's share of busy time; None: it saw no device."""

    name: str
    begin: int
    end: int
    computing: float | None
    copying: float | None


def phases() -> Iterator[tuple[str, Callable[[], None]]]:
    """The phases by name: a function for each."""
    start = jax.random.normal(jax.random.key(0), (SIDE, SIDE), jnp.bfloat16)
    weight = start * 0.01
    wide = weight.astype(jnp.float32)
    batch = np.random.default_rng(0).standard_normal((SIDE // 2, SIDE)).astype(np.float32)

    @jax.jit
    def heavy(x: Any) -> Any:
        for _ in range(8):
            x = jnp.tanh(x @ weight)
        return x, x.astype(jnp.float32).mean()

    @jax.jit
    def taking(given: Any) -> Any:
        return (given @ wide).mean()

    def steps(after: Callable[[Any, Any], object], count: int = STEPS) -> Callable[[], None]:
        def run() -> None:
            x = start
            for _ in range(count):
                x, mean = heavy(x)
                after(x, mean)
            jax.block_until_ready(x)

        return run

    def python(*_: Any) -> None:
        until = time.perf_counter_ns() + 8_000_000
        while time.perf_counter_ns() < until:
            sum(range(200))

    def given(send: Callable[[Any], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(STEPS):
                last = taking(send(batch))
            jax.block_until_ready(last)

        return run

    yield "one after the other", steps(lambda x, mean: None)
    yield "the host sleeps 4 ms", steps(lambda x, mean: (jax.block_until_ready(x), time.sleep(0.004)))
    yield "the host runs Python, 8 ms", steps(python)
    yield "float() in each step", steps(lambda x, mean: float(mean))
    yield "a copy to the host", steps(lambda x, mean: np.asarray(x), STEPS // 2)
    yield "a NumPy argument, 32 MiB", given(lambda one: one)
    yield "device_put of 32 MiB", given(jax.device_put)


def union(spans: Iterable[tuple[float, float]]) -> float:
    """The time within any of the spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def profiled(folder: Path) -> tuple[float, float] | None:
    """ns in which kernels ran, and copies; None where the profile has no device."""
    kernels, copies = list[tuple[float, float]](), list[tuple[float, float]]()
    for file in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            for line in plane.lines if plane.name.startswith("/device:") else ():
                if line.name.startswith("Stream"):
                    for event in line.events:
                        span = event.start_ns, event.start_ns + event.duration_ns
                        (copies if "Memcpy" in event.name and "D2D" not in event.name else kernels).append(span)
    return (union(kernels), union(copies)) if kernels else None


def main() -> None:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, 1
    told: list[Phase] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.log"
        with xlaprof.record(log, detail="full"):
            for name, run in phases():
                run()  # compiled, and seen once
                time.sleep(0.1)
                profile = Path(folder) / name.replace(" ", "_").replace("(", "").replace(")", "")
                jax.profiler.start_trace(str(profile), profiler_options=options)
                begin = time.perf_counter_ns()
                run()
                end = time.perf_counter_ns()
                jax.profiler.stop_trace()
                seen = profiled(profile)
                wall = end - begin
                told.append(Phase(name, begin, end, *((part / wall for part in seen) if seen else (None, None))))
        events = list(xlaprof.read(log))
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(f"{'':28}{'wall':>10}{'recording':>11}{'profiler':>10}{'copies':>8}  reads and uploads, as recorded")
    for one in told:
        runs = [(e.start, e.end) for e in events if isinstance(e, Execute) and e.end > one.begin and e.start < one.end]
        busy = union((max(begin, one.begin), min(end, one.end)) for begin, end in runs)
        wall = one.end - one.begin
        of_phase = [
            e for e in events if isinstance(e, TransferFromDevice | TransferToDevice) and one.begin <= e.t < one.end
        ]
        moved = sum(e.bytes for e in of_phase) / 2**20
        took = sum(e.dur for e in of_phase) / 1e6
        shares = "".join(
            f"{'-' if part is None else f'{part:.1%}':>{width}}"
            for part, width in ((one.computing, 10), (one.copying, 8))
        )
        print(f"{one.name:28}{wall / 1e6:7.0f} ms{busy / wall:11.1%}{shares}", end="")
        print(f"  {len(of_phase)}: {moved:.0f} MiB, {took:.0f} ms")


if __name__ == "__main__":
    main()
