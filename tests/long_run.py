"""Runs of hours: parts of many seeds in worker processes, a bar on standard error, figures on standard output.

Ctrl-C (and SIGTERM) ends a run early: parts that are at work are finished, and the figures are of what was done.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn


class Figures(Protocol):
    """What came of some seeds. It travels between processes."""

    failures: dict[str, Any]  # what happened -> how it is shown

    def add(self, other: Self) -> None:
        """Count what came of other seeds too."""

    def figures(self) -> str:
        """The lines to print."""


F = TypeVar("F", bound=Figures)


def arguments(program: str, doc: str, what: str, count: int, seed: int = 0) -> argparse.ArgumentParser:
    """The options of all long runs: ``--<what> 1000 --seed 0 --workers 2 --stop 100``."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=doc.splitlines()[0])
    parser.add_argument(f"--{what}", type=int, default=count, metavar="COUNT", dest="count", help=f"default: {count:,}")
    parser.add_argument("--seed", type=int, default=seed, help=f"of the first (default: {seed})")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--stop", type=int, default=100, help="after so many different failures (default: 100)")
    return parser


def long_run(
    what: str, options: argparse.Namespace, work: Callable[[range], F], nothing: F, part: int, out: Any = None
) -> int:
    """Have ``options.workers`` processes do ``work`` for all seeds, ``part`` of them at a time; the exit code.

    ``work`` is a function of an importable module; what it returns is added to ``nothing``. Each failure is printed
    when it is found, the first time. A seed that kills its process is one.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers' too
    os.environ.setdefault("XLAPROF_CACHE_DIR", "off")  # what is tested is compiled
    say = partial(print, file=out, flush=True)
    seeds = range(options.seed, options.seed + options.count)
    done, cpu_s, count, began = nothing, 0.0, 0, time.monotonic()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)

    def add(its: range, more: F, its_cpu_s: float) -> bool:
        """Whether to go on."""
        nonlocal cpu_s, count
        for key in more.failures.keys() - done.failures.keys():
            say(more.failures[key])
        done.add(more)
        cpu_s += its_cpu_s
        count += len(its)
        progress.update(bar, completed=count)
        return len(done.failures) < options.stop and not asked

    with _stopped_by_signals() as asked, progress:
        bar = progress.add_task(what, total=len(seeds))
        try:
            parts = [seeds[at : at + part] for at in range(0, len(seeds), part)]
            while parts:
                parts = _all_at_once(parts, options.workers, work, add)
                # a process died: of a seed of the first parts that are left, to which the processes had come
                for suspects in parts[: max(options.workers, 1) + 1]:
                    for seed in _one_by_one(suspects, work, add):
                        done.failures[f"seed {seed}"] = f"seed {seed}: its process died"
                        say(done.failures[f"seed {seed}"])
                        count += 1
                    parts = parts[1:]
                    if asked or len(done.failures) >= options.stop:
                        parts = []
        except KeyboardInterrupt:
            pass
        finally:  # whatever ends it
            stopped = f" of {len(seeds):,}" if count < len(seeds) else ""
            say(done.figures())
            say(
                f"{count:,}{stopped} {what}, seeds {seeds.start} to {seeds.stop - 1}: {len(done.failures)} different "
                f"failures; {cpu_s:,.0f} s of CPU, {time.monotonic() - began:,.0f} s"
            )
    return 1 if done.failures else 0


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max(workers, 1), multiprocessing.get_context("spawn"), initializer=_as_worker)


def _all_at_once(
    parts: list[range], workers: int, work: Callable[[range], F], add: Callable[[range, F, float], bool]
) -> list[range]:
    """Do the parts, until ``add`` asks for an end; return those that are left where a process died, in order."""
    pool = _pool(workers)
    futures = {pool.submit(_timed, work, seeds): seeds for seeds in parts}
    try:
        try:
            for ready in as_completed(list(futures)):
                more = ready.result()
                if not add(futures.pop(ready), *more):
                    break
        finally:
            for ready in [future for future in futures if not future.cancel()]:
                with contextlib.suppress(BrokenProcessPool):
                    more = ready.result()
                    add(futures.pop(ready), *more)
    except BrokenProcessPool:
        left = {*futures.values()}
        return [seeds for seeds in parts if seeds in left]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return []


def _one_by_one(seeds: range, work: Callable[[range], F], add: Callable[[range, F, float], bool]) -> Iterator[int]:
    """Do each seed by itself; yields those that kill their process."""
    pool = _pool(1)
    try:
        for at, seed in enumerate(seeds):
            one = seeds[at : at + 1]
            try:
                more = pool.submit(_timed, work, one).result()
            except BrokenProcessPool:
                pool = _pool(1)
                yield seed
            else:
                add(one, *more)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _timed(work: Callable[[range], F], seeds: range) -> tuple[F, float]:
    """Also the seconds of CPU, those of processes that ended included."""
    before = _cpu_s()
    done = work(seeds)
    return done, _cpu_s() - before


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _as_worker() -> None:
    """Ctrl-C is for the first process; what libraries say of programs that are meant to fail is for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[list[int]]:
    """The signals that asked for an end: the first is noted, the second one raises KeyboardInterrupt.

    Also in the background of a shell, which has its programs ignore Ctrl-C.
    """
    asked: list[int] = []

    def note(which: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(which)

    before = {which: signal.signal(which, note) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
