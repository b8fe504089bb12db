"""Real ranks for tests: programs are launched, and what each rank returns comes back.

The ranks are forked from a server that has imported the runtime, and what PyTorch imports at its first use: a launch
takes a second of the processor instead of eight for each rank.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from xlaprof.runtime.distributed import global_ordinal, run_multiprocess

multiprocessing.set_forkserver_preload(["torch._dynamo", "xlaprof.runtime.distributed"])


def run(fn: Callable[..., Any], *args: Any, nprocs: int = 2) -> list[Any]:
    """What ``fn(index, *args)`` returns on each of ``nprocs`` ranks. Raises what ``launch`` raises."""
    results = run_multiprocess(_numbered, fn, args, nprocs=nprocs, start_method="forkserver")
    assert list(results) == list(range(nprocs))
    return list(results.values())


def _numbered(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return fn(global_ordinal(), *args)
