"""The figures of docs/reliability.md: ``python -m tests.mutations [--count 1000] [--seed 0] [--workers 2]``.

Each number from --seed on makes one log, which goes through one door, in turns (--all: through all of them). Failures
are shown with their number, and the fewest lines of that log that fail the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does: what tests share is found there

from rich.console import Console
from rich.progress import Progress

from .doors import DOORS
from .sweep import Done, part

_PART = 100  # logs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="logs")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--door", choices=list(DOORS), action="append", help="only this one")
    parser.add_argument("--all", action="store_true", help="each log through each door")
    parser.add_argument("--stop", type=int, default=20, help="after so many different failures")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    parts = [seeds[at : at + _PART] for at in range(0, len(seeds), _PART)]
    done = Done()
    work = partial(part, doors=options.door or list(DOORS), every_door=options.all, stop=options.stop)
    progress = Progress(console=Console(stderr=True), transient=True)
    workers = ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn"))
    with contextlib.suppress(KeyboardInterrupt), progress:  # the figures say how far it went
        bar = progress.add_task("logs", total=len(seeds))
        for ready in as_completed([workers.submit(work, seeds) for seeds in parts]):
            more = ready.result()
            for where in more.failures.keys() - done.failures.keys():
                print(more.failures[where], flush=True)
            done.add(more)
            progress.update(bar, completed=done.logs)
            if len(done.failures) >= options.stop:
                break
    workers.shutdown(wait=False, cancel_futures=True)
    print(done.figures())
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
