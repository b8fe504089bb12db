"""What findings promise against what their fix gives back: every program of the zoo beside its fixed version.

    OMP_NUM_THREADS=1 python benchmarks/gains.py [NAME ...] [--repeat 5] [--programs DIR] [--json]

NAME.py and NAME_fixed.py run in turn under ``xlaprof run --json``, each in a process of its own. *Measured* is the
median of the differences of their wall times, *predicted* the median of what the report of NAME.py promises for all
its findings fixed together. Times count from the first thing that the program does with the device or has compiled:
what it imports is not its defect, and takes half a second more or less from run to run. Where the fix gives back more
than a fifth of the run, predicted has to be within 20 % of measured: the exit code is 1 where it is not. CPU times, of
all threads, stand beside: on a busy machine they are steadier, but a host that sleeps and a device that idles cost
none.

The two versions need not do the same amount of work otherwise (a padded batch is larger), so a few per cent of
difference mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from diagnosis import ROOT, Failed, Story, report, stories
from rich.console import Console
from rich.table import Table

from xlaprof.events import (
    Barrier,
    Compile,
    DynamoCompile,
    End,
    Execute,
    Fallback,
    Scope,
    Step,
    TransferFromDevice,
    TransferToDevice,
)
from xlaprof.log import read

SHARE = 0.2  # of the run, from which a defect's prediction has to hold
WITHIN = 0.2  # of the measured gain
#: what is work of the program's, of all that a recording tells
_WORK = (Scope, Step, Compile, Barrier, Execute, TransferToDevice, TransferFromDevice, Fallback, DynamoCompile)


class Run(NamedTuple):
    """One run of a program."""

    wall_s: float
    cpu_s: float
    predicted_s: float  # the report's: with all findings fixed together


class Gain(NamedTuple):
    """One program: medians over its runs."""

    name: str
    run_s: float
    measured_s: float
    spread_s: float  # half the distance between the quartiles of the differences
    predicted_s: float
    cpu_s: float  # measured, in CPU time

    @property
    def share(self) -> float:
        return self.measured_s / self.run_s if self.run_s > 0 else 0.0

    @property
    def ratio(self) -> float:
        return self.predicted_s / self.measured_s if self.measured_s > 0 else float("inf")

    @property
    def counts(self) -> bool:
        """The defect costs enough for the prediction to be held to."""
        return self.share > SHARE

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= WITHIN


def run(program: Path, log: Path) -> Run:
    """Run ``program`` once, recorded."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = report(program, log)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(worked_s(log), cpu, found["gain_s"])


def worked_s(log: Path) -> float:
    """Seconds from the first work that ``log`` tells to its end. The first upload starts the device: it counts from
    its end."""
    begin = end = 0
    for event in read(log):
        if isinstance(event, _WORK):
            since = event.t + event.dur if isinstance(event, TransferToDevice) else event.t
            begin = min(begin or since, since)
        if isinstance(event, End):
            end = event.t
    return max(0, end - begin) / 1e9


def measure(story: Story, folder: Path, repeat: int) -> Gain:
    """Both versions in turn, ``repeat`` times."""
    fixed = story.path.with_name(f"{story.name}_fixed.py")
    pairs = []
    for i in range(repeat):
        order = (story.path, fixed) if i % 2 == 0 else (fixed, story.path)
        runs = {path: run(path, folder / "run.log") for path in order}
        pairs.append((runs[story.path], runs[fixed]))
    differences = [a.wall_s - b.wall_s for a, b in pairs]
    quartiles = statistics.quantiles(differences, n=4) if repeat > 1 else [differences[0]] * 3
    return Gain(
        name=story.name,
        run_s=statistics.median(a.wall_s for a, _ in pairs),
        measured_s=statistics.median(differences),
        spread_s=(quartiles[2] - quartiles[0]) / 2,
        predicted_s=statistics.median(a.predicted_s for a, _ in pairs),
        cpu_s=statistics.median(a.cpu_s - b.cpu_s for a, b in pairs),
    )


def show(gains: list[Gain], console: Console) -> None:
    """The table; programs whose defect costs little below."""
    table = Table(
        "program", "run", "measured", "+-", "of the run", "predicted", "predicted / measured", "measured, CPU",
        box=None, pad_edge=False,
    )  # fmt: skip
    for gain in sorted(gains, key=lambda gain: (not gain.counts, gain.name)):
        table.add_row(
            gain.name, f"{gain.run_s:.2f} s", f"{gain.measured_s:.2f} s", f"{gain.spread_s:.2f} s", f"{gain.share:.0%}",
            f"{gain.predicted_s:.2f} s", f"{gain.ratio:.2f}" if gain.counts else "", f"{gain.cpu_s:.2f} s",
            style="red" if gain.counts and not gain.holds else "" if gain.counts else "dim",
        )  # fmt: skip
    console.print(table)
    held = [gain for gain in gains if gain.counts]
    console.print(
        f"\n{sum(gain.holds for gain in held)} of {len(held)} predictions within {WITHIN:.0%} where the defect costs "
        f"more than {SHARE:.0%} of the run."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all that have a fixed version)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each version (default: 5)")
    parser.add_argument("--programs", type=Path, default=ROOT / "tests" / "zoo", metavar="DIR", help="where they are")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    args = parser.parse_args()
    chosen = [story for story in stories(args.programs.absolute()) if story.truths]
    if args.names:
        chosen = [story for story in chosen if story.name in args.names]
    if not chosen:
        parser.error(f"no such program with a fixed version in {args.programs}")
    say = Console(stderr=True)
    gains = []
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for story in chosen:
            try:
                gain = measure(story, folder, args.repeat)
            except Failed as e:
                failed = True
                say.print(f"{story.name}: failed: {e}", markup=False, highlight=False)
                continue
            gains.append(gain)
            told = f"measured {gain.measured_s:.2f} s, predicted {gain.predicted_s:.2f} s"
            say.print(f"{gain.name}: {told}", highlight=False)
    if args.json:
        print(json.dumps([{**gain._asdict(), "share": gain.share, "holds": gain.holds} for gain in gains], indent=1))
    else:
        show(gains, Console())
    return int(failed or any(gain.counts and not gain.holds for gain in gains))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("XLAPROF_CACHE_DIR", "off")
    sys.exit(main())
