"""What a ``Trace`` scope costs, beside other tools' scopes: CPU nanoseconds, enter + exit, on one core.

    taskset -c 0 python benchmarks/trace_scopes.py

The scopes of the other tools run here and now where they are installed; the figures of peers measured once, on
another machine, are printed as such. The first row is what ``with`` costs at all.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import xlaprof
from xlaprof.recording import recorder

SCOPES = 20_000
REPEATS = 25

#: nothing recording / recording, enter + exit, CPython 3.12, 2-core virtual machine
PEERS = (
    ("jax.profiler.TraceAnnotation", 259, 416),
    ("torch 2.9 record_function", 6_151, 6_935),
    ("viztracer log_event", 2_287, 3_376),
    ("OpenTelemetry span", 4_252, 12_949),
    ("no-op context manager", 148, None),
)


class NoOp:
    def __enter__(self) -> NoOp:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def cost(source: str, settle: Callable[[], None] = lambda: None, **names: Any) -> float:
    """CPU nanoseconds of this thread per ``with <scope>: pass``, less the loop: the best of 25 repeats."""
    body = f"def scopes(n):\n for _ in range(n):\n  with {source}: pass\n"
    return best(body, names, settle) - best("def scopes(n):\n for _ in range(n): pass\n", {})


def best(source: str, names: dict[str, Any], settle: Callable[[], None] = lambda: None) -> float:
    exec(source, names)
    scopes: Callable[[int], None] = names["scopes"]
    least = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time_ns()
        scopes(SCOPES)
        least = min(least, (time.thread_time_ns() - began) / SCOPES)
        settle()
    return least


def row(name: str, off: float | None, on: float | None) -> None:
    cells = ["-" if value is None else f"{value:,.0f}" for value in (off, on)]
    print(f"{name:<44}{cells[0]:>12}{cells[1]:>12}")


def drain() -> None:
    """Let the writer catch up: its own time is another figure (benchmarks/recorder.py)."""
    while recorder.active is not None and recorder.active.queue:
        time.sleep(0.01)


def ours() -> None:
    scopes: dict[str, tuple[str, dict[str, Any]]] = {
        'xlaprof.Trace("scope")': ('Trace("scope")', {"Trace": xlaprof.Trace}),
        'xlaprof.Trace("scope", layer=3)': ('Trace("scope", layer=3)', {"Trace": xlaprof.Trace}),
        "one xlaprof.Trace, entered again": ("trace", {"trace": xlaprof.Trace("scope")}),
        'xlaprof.StepTrace("train", step_num=1)': ('StepTrace("train", step_num=1)', {"StepTrace": xlaprof.StepTrace}),
    }
    off = {name: cost(source, **names) for name, (source, names) in scopes.items()}
    with tempfile.TemporaryDirectory() as folder, xlaprof.record(os.path.join(folder, "run.log")):
        on = {name: cost(source, drain, **names) for name, (source, names) in scopes.items()}
    for name in scopes:
        row(name, off[name], on[name])


def others() -> None:
    try:
        import jax
    except ImportError:
        print("jax: not installed", file=sys.stderr)
    else:
        row(f"jax {jax.__version__} TraceAnnotation", cost('scope("scope")', scope=jax.profiler.TraceAnnotation), None)
    try:
        import torch
    except ImportError:
        print("torch: not installed", file=sys.stderr)
    else:
        row(
            f"torch {torch.__version__} record_function", cost('scope("x")', scope=torch.profiler.record_function), None
        )


def main() -> None:
    print(f"{'CPU ns per scope, here':<44}{'off':>12}{'recording':>12}")
    row("no-op context manager", cost("NoOp()", NoOp=NoOp), None)
    ours()
    others()
    print(f"\n{'measured once, elsewhere':<44}{'off':>12}{'recording':>12}")
    for name, off, on in PEERS:
        row(name, off, on)


if __name__ == "__main__":
    main()
