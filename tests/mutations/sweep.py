"""Many logs through the doors: figures, and each failure once, with the fewest lines that show it."""

from __future__ import annotations

import gc
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .doors import WIDTHS, Outcome, go_through, most_output
from .mutate import mutated, valid

_SHRINK_S = 20.0


class Failure(NamedTuple):
    seed: int
    door: str
    width: str
    trace: str
    log: bytes

    def __str__(self) -> str:
        log = self.log[:3_000].decode("utf-8", "replace")
        return f"seed {self.seed}, {self.door}, COLUMNS={self.width}\n{self.trace}{log}"


class Done:
    """What a sweep has found so far."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}  # by where it was raised
        self.again: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.logs = self.runs = self.bytes = 0
        self.slowest = (0.0, 0, "")
        self.largest = (0.0, 0, "")

    def add(self, other: Done) -> None:
        self.failures = other.failures | self.failures
        self.again += other.again
        self.codes += other.codes
        self.logs, self.runs, self.bytes = self.logs + other.logs, self.runs + other.runs, self.bytes + other.bytes
        self.slowest, self.largest = max(self.slowest, other.slowest), max(self.largest, other.largest)

    def figures(self) -> str:
        codes = ", ".join(f"{count:,} x exit code {code}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.logs:,} logs ({self.bytes / 1e6:,.0f} MB), read {self.runs:,} times: "
            f"{sum(self.again.values())} failures ({len(self.failures)} different); {codes}\n"
            f"slowest {self.slowest[0]:.2f} s (seed {self.slowest[1]}, {self.slowest[2]}), largest output "
            f"{self.largest[0]:.2f} of what is allowed (seed {self.largest[1]}, {self.largest[2]})"
        )


def sweep(
    seeds: Iterable[int],
    doors: Sequence[str],
    every_door: bool = False,
    stop: int = 20,
) -> Done:
    """Make the logs, and read each through one of ``doors``, or all."""
    done = Done()
    with tempfile.TemporaryDirectory() as folder:
        log, other = Path(folder, "run.log"), Path(folder, "other.log")
        other.write_bytes(b"\n".join(valid()[0]) + b"\n")
        for seed in seeds:
            data = mutated(seed)
            log.write_bytes(data)
            done.logs += 1
            done.bytes += len(data)
            for door in doors if every_door else (doors[seed % len(doors)],):
                width = WIDTHS[seed // 7 % len(WIDTHS)]
                begin = time.process_time()
                where, trace, outcome = _attempt(door, log, other, width)
                done.slowest = max(done.slowest, (time.process_time() - begin, seed, door))
                done.runs += 1
                if outcome is not None:
                    done.codes[outcome.code] += 1
                    done.largest = max(done.largest, (len(outcome.output) / most_output(data), seed, door))
                    continue
                done.again[where] += 1
                if where not in done.failures:
                    done.failures[where] = Failure(
                        seed, door, width, trace, _shrunk(data, door, log, other, width, where)
                    )
            if len(done.failures) >= stop:
                break
    return done


def part(seeds: Iterable[int], **options: Any) -> Done:
    """One part, without the collector of cycles, which takes a quarter of the time: it runs once, at the end."""
    gc.disable()
    done = sweep(seeds, **options)
    gc.collect()
    return done


def _attempt(door: str, log: Path, other: Path, width: str) -> tuple[str, str, Outcome | None]:
    """Where it failed and the trace, or the outcome."""
    try:
        outcome = go_through(door, log, other, width)
        allowed = most_output(log.read_bytes())
        assert len(outcome.output) <= allowed, f"{len(outcome.output):,} characters of {allowed:,}"
        return "", "", outcome
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} {Path(last.filename).name}:{last.lineno}"
        return where, "".join(traceback.format_exception(error)[-6:]), None


def _shrunk(data: bytes, door: str, log: Path, other: Path, width: str, where: str) -> bytes:
    """The fewest lines that fail in the same place: parts are left out as long as it does."""
    lines, until = data.split(b"\n"), time.process_time() + _SHRINK_S
    size = len(lines) // 2
    while size and time.process_time() < until:
        at = 0
        while at < len(lines) and time.process_time() < until:
            fewer = lines[:at] + lines[at + size :]
            log.write_bytes(b"\n".join(fewer))
            if _attempt(door, log, other, width)[0] == where:
                lines = fewer
            else:
                at += size
        size //= 2
    return b"\n".join(lines)
