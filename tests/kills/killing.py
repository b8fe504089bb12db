"""Programs that are killed at random moments, and what their logs lack.

The programs note in memory that outlives them when each scope had ended; the log is held against these notes. While a
process gets no processor, nothing of it runs, its writer neither: time is counted up to the last scope that ended, and
without the longest stall of the program itself.
"""

from __future__ import annotations

import itertools
import mmap
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from recording import Recorded

from xlaprof.events import End, Scope, StepDigest

MOST = 200_000  # scopes of one program

PROGRAM = """
import mmap, sys, time, xlaprof
per_step, busy, pause = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
with open(sys.argv[1], "r+b") as file:
    ended = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
now = time.perf_counter_ns
def scope(number):
    with xlaprof.Trace("scope", number=number):
        until = now() + busy
        while now() < until:
            pass
        if pause:
            time.sleep(pause)
    ended[number] = now()
    if not number:
        print("recording", flush=True)
for number in range(0, len(ended), per_step or 1):
    if not per_step:
        scope(number)
        continue
    with xlaprof.StepTrace("step", step_num=number // per_step):
        for inner in range(number, number + per_step):
            scope(inner)
"""

#: scopes per step (0: no steps), ns busy and s asleep in each: dense and sparse scopes, short and long steps
PROFILES = [
    (0, 20_000, 0.0),
    (0, 3_000_000, 0.0),
    (0, 100_000, 0.015),
    (3, 20_000, 0.0),
    (3, 5_000_000, 0.0),
    (3, 1_000_000, 0.01),
    (30, 5_000_000, 0.0),
    (1000, 200_000, 0.0),
]


class Kill(NamedTuple):
    """What a kill cost."""

    seed: int
    profile: tuple[int, int, float]
    ended: int  # scopes
    missing: int  # of these
    lost_ms: float  # from the end of the first missing scope to that of the last, without the program's longest stall
    lost_wall_ms: float  # and to the kill, stalls of the process included


def kill(folder: Path, seed: int) -> Kill:
    """Run a program, kill it and read what it left: one time in ten before its first scope."""
    draw = random.Random(seed)
    profile, begins, after_s = draw.choice(PROFILES), draw.random() > 0.1, draw.uniform(0.0, 0.7)
    notes, script, log = folder / "notes", folder / "program.py", folder / "run.log"
    log.unlink(missing_ok=True)
    script.write_text(PROGRAM)
    with notes.open("wb") as file:
        file.truncate(8 * MOST)
    command = [sys.executable, "-m", "xlaprof", "run", "--no-report", "-o", str(log), str(script), str(notes)]
    with subprocess.Popen([*command, *map(str, profile)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        if begins and child.stdout is not None:
            child.stdout.readline()
        with suppress(subprocess.TimeoutExpired):
            child.wait(after_s)
        killed = time.perf_counter_ns()  # one clock for all processes
        child.send_signal(signal.SIGKILL)
        _, err = child.communicate()
        assert child.returncode == -signal.SIGKILL, err.decode()
    with notes.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        ended = [t for t in struct.unpack(f"{MOST}q", memory) if t]
    known = _numbers_in(log, profile[0])
    missing = [t for number, t in enumerate(ended) if number not in known]
    if not missing:
        return Kill(seed, profile, len(ended), 0, 0.0, 0.0)
    lost = [t for t in ended if t >= missing[0]]
    own = profile[1] + profile[2] * 1e9
    stall = max((after - before - own for before, after in itertools.pairwise(lost)), default=0.0)
    span = lost[-1] - lost[0] - max(stall, 0.0)
    return Kill(seed, profile, len(ended), len(missing), span / 1e6, (killed - lost[0]) / 1e6)


def _numbers_in(log: Path, per_step: int) -> set[int]:
    """The scopes that a log has, one by one or in the sum of their step."""
    if not log.exists():  # killed before it began
        return set()
    recorded = Recorded(log)
    assert not recorded.of(End)
    known = {scope.meta["number"] for scope in recorded.of(Scope)}
    for step in recorded.of(StepDigest):
        known.update(range(step.num * per_step, (step.num + 1) * per_step))
    return known


@contextmanager
def load(processes: int) -> Iterator[None]:
    """A machine on which so many other processes never rest."""
    with ExitStack() as stack:
        for _ in range(processes):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        yield


class Kills:
    """What came of many kills."""

    def __init__(self, *kills: Kill) -> None:
        self.kills = list(kills)
        self.failures: dict[str, str] = {}

    def add(self, other: Kills) -> None:
        self.kills += other.kills
        self.failures |= other.failures

    @property
    def recorded(self) -> int:
        """Kills after which the log had a scope."""
        return sum(one.ended > one.missing for one in self.kills)

    def figures(self) -> str:
        if not self.kills:
            return "no kills"
        lost = sorted((one.lost_ms, one.seed) for one in self.kills)
        walls = sorted((one.lost_wall_ms, one.seed) for one in self.kills)
        half = len(lost) // 2
        return (
            f"{len(lost):,} kills, {sum(one.ended > 0 for one in self.kills):,} after a scope, of which "
            f"{self.recorded:,} had one in the log; ended scopes lost: median {lost[half][0]:.0f} ms, at most "
            f"{lost[-1][0]:.0f} (seed {lost[-1][1]}); up to the kill, stalls included: median {walls[half][0]:.0f} ms, "
            f"at most {walls[-1][0]:.0f} (seed {walls[-1][1]})"
        )


def kills(seeds: Iterable[int]) -> Kills:
    """Kill a program for each seed. More than 100 ms lost, and a log that cannot be read, are failures."""
    done = Kills()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            try:
                one = kill(Path(folder), seed)
            except Exception as error:
                done.failures[f"seed {seed}"] = f"seed {seed}: {type(error).__name__}: {error}"
                continue
            done.kills.append(one)
            if one.lost_ms > 100:
                done.failures[f"seed {seed}"] = f"seed {seed}: {one}"
    return done
