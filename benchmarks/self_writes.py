"""What it costs other programs that writes of a tensor into itself are looked for (docs/xla-self-writes.md).

    OMP_NUM_THREADS=1 python benchmarks/self_writes.py

Two programs without such a write: transformers' BERT with AdamW, two training steps, and a cache of keys that is
written slice by slice. CPU time of looking for them beside that of the whole program, most of which is compilation. A
graph is searched when it is traced for its compilation; one in which nothing is found is lowered as if nothing had been
looked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
from compile_cost import make_step

import xlaprof.runtime as xr
from xlaprof.runtime.trace import evaluate

os.environ["XLAPROF_CACHE_DIR"] = "off"  # compiling is part of what is measured


def cached_keys() -> None:
    """64 keys, each written into its place of a cache, which is read after each."""
    torch.manual_seed(0)
    cache = torch.zeros(8, 64, 32, device="xla")
    query = torch.randn(8, 32, device="xla")
    total = torch.zeros(8, 64, device="xla")
    for at in range(64):
        cache[:, at] = query * (at + 1)
        total += torch.einsum("bnc,bc->bn", cache, query)
    xr.sync(wait=True)


def bert() -> None:
    step = make_step(layers=4, width=128)
    for _ in range(2):
        step()
    xr.sync(wait=True)


def looked_for(program: Callable[[], None], find: Callable[[Any], set[Any]]) -> tuple[float, float, int, int]:
    """CPU s of the search and of the program, nodes that were searched, writes that were found."""
    spent, searched, found = 0.0, 0, 0

    def timed(nodes: Any) -> set[Any]:
        nonlocal spent, searched, found
        start = time.process_time()
        writes = find(nodes)
        spent += time.process_time() - start
        searched += len(nodes)
        found += len(writes)
        return writes

    evaluate.self_writes = timed  # type: ignore[assignment]
    start = time.process_time()
    program()
    return spent, time.process_time() - start, searched, found


def main() -> None:
    find = evaluate.self_writes
    for program in (bert, cached_keys):
        spent, whole, nodes, found = looked_for(program, find)
        print(
            f"{program.__name__}: {nodes:,} operations searched in {spent * 1e3:.1f} ms of {whole:.2f} s of CPU "
            f"({spent / whole:.2%}), {found} found"
        )


if __name__ == "__main__":
    main()
