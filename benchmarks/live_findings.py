"""How soon is known what a compilation cost that has just ended, while the program goes on.

    python benchmarks/live_findings.py [--sources torch jax] [--functions 6] [--terminal]

A program under ``xlaprof run`` trains all the time, and now and then calls one of its functions with another size,
which is compiled again. The time counts from the end of a compilation, as its event says (the clock is the same for
all processes of a machine), until

* its line is in the log: a reader looks every 2 ms,
* its finding is there, or counts one more, in the report of that reader, who follows the log as the terminal UI does
  and makes a report as soon as the line has come,
* the warning is on standard error: of the tenth compilation for one cause (JAX), and from the moment at which the
  recompile limit was hit (torch.compile); once for each function,
* with ``--terminal``, it is on the terminal of an ``xlaprof live`` beside, which looks and reports at its own pace. Of
  torch.compile that may be before the end: Dynamo says why it compiles again before it does.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from terminal_live import Screen

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from xlaprof.analysis.model import Report  # noqa: E402
from xlaprof.events import DynamoCompile, DynamoLimit, JitCompile, Text  # noqa: E402
from xlaprof.log import Tail  # noqa: E402
from xlaprof.tui.feed import Feed  # noqa: E402

WANTED_MS = 200
_LOOK_S = 0.002
_PATIENCE_S = 30.0
_WARNING = re.compile(r"^xlaprof: .*\b(f\d+)\b.*\(called at")
#: calls of each function with one size more: torch.compile stops at the recompile limit, JAX at nothing
CALLS = {"torch": 9, "jax": 11}
_TORCH = """
import torch
torch.set_num_threads(1)
def compiled(function):
    return torch.compile(function, dynamic=False, backend="aot_eager")
weights, made = torch.randn(640, 640), torch.ones
"""
_JAX = """
import jax, numpy
compiled, weights, made = jax.jit, jax.numpy.ones((640, 640)), lambda size: numpy.ones(size, numpy.float32)
"""
_FUNCTION = """
@compiled
def f{n}(x):
    return (x * {n} + 1).sum()
def call_{n}(size):
    with xlaprof.StepTrace("train", step_num=next(numbers)):
        f{n}(made(size))
"""
_TRAINING = """
import itertools, random, time, xlaprof
@compiled
def loss(x):
    return (x @ x).sum()
numbers, pause = itertools.count(), random.Random(0)
def train(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        with xlaprof.StepTrace("train", step_num=next(numbers)):
            loss(weights)
train(0.5)
"""
_CALLS = """
for size in range(2, {calls} + 2):
    call_{n}(size)
    train(pause.uniform(0.1, 0.3))  # at no constant moment of anybody's rhythm
"""


class Compiled(NamedTuple):
    """A compilation: ns of the clock."""

    end: int
    line: int  # when its line was in the log
    known: int  # when a report counted it, 0: none did
    count: int  # compilations that findings counted then


def program(source: str, functions: int) -> str:
    parts = [{"torch": _TORCH, "jax": _JAX}[source], _TRAINING]
    parts += [_FUNCTION.format(n=n) for n in range(functions)]
    parts += [_CALLS.format(n=n, calls=CALLS[source]) for n in range(functions)]
    return "".join(parts)


def counted(report: Report | None) -> int:
    """How many compilations the findings tell of."""
    return sum(one.count for one in report.findings if one.kind == "recompile") if report is not None else 0


class Warned:
    """When standard error of a process said what."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[tuple[int, str]] = []
        self._process = process
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append((time.perf_counter_ns(), line))

    def wait(self) -> dict[str, int]:
        """By function: when it was warned of."""
        self._reader.join()
        if self._process.wait():
            raise SystemExit("".join(line for _, line in self.lines))
        found = ((_WARNING.match(line), at) for at, line in self.lines)
        return {match[1]: at for match, at in found if match is not None}


class Followed:
    """What a reader of a growing log knows, and since when."""

    def __init__(self, log: Path) -> None:
        self.compiled: list[Compiled] = []
        self.ends: dict[str, list[int]] = {}  # by function: of what a warning can tell of
        self._names: dict[int, str] = {}
        self._tail, self._feed = Tail(log), Feed(str(log))
        self._count = 0

    def look(self) -> None:
        events: Any = self._tail.poll()
        now = time.perf_counter_ns()
        ends = []
        for one in events:
            if isinstance(one, Text):
                self._names[one.id] = one.text
            elif isinstance(one, DynamoCompile | JitCompile | DynamoLimit):
                end = one.t + getattr(one, "dur", 0)
                ends += [] if isinstance(one, DynamoLimit) else [end]
                if not isinstance(one, DynamoCompile):
                    self.ends.setdefault(self._names.get(one.func, ""), []).append(end)
        if ends:
            count = counted(self._feed.advance().report)
            known = time.perf_counter_ns() if count > self._count else 0
            self._count = count
            self.compiled += [Compiled(end, now, known, count) for end in ends]

    def close(self) -> None:
        self._tail.close()
        self._feed.close()


def measure(source: str, functions: int, terminal: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, script, shown = (Path(folder) / name for name in ("run.log", "train.py", "shown.txt"))
        script.write_text(program(source, functions))
        for file in (log, shown):
            file.touch()
        screen = Screen([sys.executable, __file__, "--screen", str(log), str(shown)]) if terminal else None
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "xlaprof", "run", "-o", str(log), str(script)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        warned = Warned(process)
        with closing(Followed(log)) as followed:
            while process.poll() is None:
                followed.look()
                time.sleep(_LOOK_S)
            followed.look()
        at = warned.wait()
        seen = [(0, 0)]
        if screen is not None:
            until = time.monotonic() + _PATIENCE_S
            while seen[-1][1] < followed.compiled[-1].count and time.monotonic() < until:
                time.sleep(_LOOK_S)
                seen = [(int(at), int(count)) for at, count in map(str.split, shown.read_text().splitlines())] or seen
            screen.close()
        told = [one for one in followed.compiled if one.known]
        tell(source, "the line in the log", [one.line - one.end for one in followed.compiled])
        tell(source, "the finding in a report", [one.known - one.end for one in told])
        tell(
            source,
            "the warning",
            [at[name] - before(ends, at[name]) for name, ends in followed.ends.items() if name in at],
        )
        if terminal:
            tell(source, "the finding on the terminal", [first(seen, one.count) - one.end for one in told])


def before(moments: list[int], at: int) -> int:
    return max(one for one in moments if one <= at)


def first(seen: list[tuple[int, int]], count: int) -> int:
    """When so many were on the screen, or more."""
    return next(at for at, there in seen if there >= count)


def tell(source: str, what: str, delays: list[int]) -> None:
    ms = sorted(one / 1e6 for one in delays)
    late = sum(one > WANTED_MS for one in ms)
    if ms:
        print(
            f"{source:6}{what:30}{statistics.median(ms):8.0f}{ms[-1]:8.0f}{late:8} of {len(ms)}",
            flush=True,
        )


def show(log: str, shown: str) -> None:
    """The UI, which notes when how many compilations were on it."""
    from xlaprof.commands._looking import desk
    from xlaprof.tui.app import LiveApp
    from xlaprof.tui.feed import CALM_S, REST, SHARE
    from xlaprof.tui.snapshot import Snapshot

    most = 0

    class Noting(LiveApp):
        CSS_PATH = ROOT / "xlaprof" / "tui" / "live.tcss"  # would be looked for beside this file

        def _show(self, snapshot: Snapshot, new: bool = True) -> None:
            nonlocal most
            super()._show(snapshot, new)
            if (count := counted(snapshot.report)) > most:
                most = count
                self.call_after_refresh(lambda: notes.write(f"{time.perf_counter_ns()} {count}\n"))

    with closing(Feed(log, rest=REST, calm_s=CALM_S, share=SHARE)) as feed, open(shown, "w", buffering=1) as notes:
        feed.open()
        Noting(feed.advance, desk=desk(feed)).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", nargs="+", choices=tuple(CALLS), default=tuple(CALLS))
    parser.add_argument("--functions", type=int, default=6, help="that are compiled again and again")
    parser.add_argument("--terminal", action="store_true", help="with the terminal UI beside, in a terminal of its own")
    parser.add_argument("--screen", nargs=2, help=argparse.SUPPRESS)  # the UI: its log, and where its notes go
    args = parser.parse_args()
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # nobody's settings
    if args.screen:
        show(*args.screen)
        return
    print("load", *(f"{load:.1f}" for load in os.getloadavg()), "of", os.cpu_count(), "cores")
    print(f"{'ms after the end of a compilation':36}{'median':>8}{'worst':>8}  later than {WANTED_MS}")
    for source in args.sources:
        measure(source, args.functions, args.terminal)


if __name__ == "__main__":
    main()
