"""What one ``.item()`` costs in a loop without a barrier, from its first turns on.

    OMP_NUM_THREADS=1 python benchmarks/reads.py [--reads 1500]

CPU time of this thread per turn, execution and read included, median of the turns between two counts. PyTorch/XLA 2.9
needs some 50 us from the start.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable

import torch

import xlaprof.runtime as xr

os.environ.setdefault("XLAPROF_CACHE_DIR", "off")

#: turns between which medians are taken; the first compiles
COUNTS = (1, 10, 50, 100, 200, 500, 1000, 1500)


def turns(turn: Callable[[], float], reads: int) -> list[float]:
    """The CPU time of each turn, in us."""
    found = []
    for _ in range(reads):
        start = time.thread_time_ns()
        turn()
        found.append((time.thread_time_ns() - start) / 1e3)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=COUNTS[-1])
    reads = parser.parse_args().reads
    x = torch.ones(8, device="xla")  # stays pending: nothing but a barrier computes it for good
    y = torch.ones(8).to("xla")  # has its value
    loops = {
        "x.sum().item(), x pending": lambda: x.sum().item(),
        "(x * 3).sum().item(), x pending": lambda: (x * 3.0).sum().item(),
        "y.sum().item(), y computed": lambda: y.sum().item(),
    }
    print(f"{'us of CPU time per turn, until turn':36}" + "".join(f"{n:>7}" for n in COUNTS[1:]))
    for name, turn in loops.items():
        xr.sync()
        took = turns(turn, reads)
        medians = [statistics.median(took[a:b]) for a, b in itertools.pairwise(COUNTS) if b <= reads]
        print(f"{name:36}" + "".join(f"{us:7.0f}" for us in medians))


if __name__ == "__main__":
    main()
