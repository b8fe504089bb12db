"""The operators' report: ``python -m tests.operators [--from SWEPT.jsonl] [--workers N] [docs/operators.md]``.

Sweeps the whole database (or reads what a sweep wrote) and writes the page with its figures. ``make test-full`` does
so with the outcomes of its own sweep.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does: what tests share is found there

from op_database import entries

from . import outcomes, page
from .sweep import Outcome, dtypes_of, sweep


def _sweep(name: str) -> list[Outcome]:
    entry = entries()[name]
    return [sweep(name, entry, dtype) for dtype in dtypes_of(entry)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.operators", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=Path("docs/operators.md"))
    parser.add_argument("--from", dest="swept", type=Path, metavar="SWEPT", help="outcomes a sweep has written")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    options = parser.parse_args(argv)
    if options.swept is not None and not options.swept.is_file():
        print(f"no outcomes in {options.swept}: make test-full writes them", file=sys.stderr)
        return 2
    found = outcomes.read(options.swept) if options.swept else _swept(options.workers)
    options.page.write_text(page.page(found))
    wrong = [o for o in found if o.failures]
    print(f"{options.page}: {len({o.entry for o in found})} entries, {len(found)} sweeps, {len(wrong)} with failures")
    return 0


def _swept(workers: int) -> list[Outcome]:
    names = sorted(entries())
    found: list[Outcome] = []
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    # A worker lives for some entries only: thousands of compiled programs exhaust a process's memory maps.
    with (
        multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=40) as pool,
        Progress(*columns) as bar,
    ):
        task = bar.add_task("Operators", total=len(names))
        for several in pool.imap_unordered(_sweep, names):
            found += several
            bar.advance(task)
    return found


if __name__ == "__main__":
    sys.exit(main())
