"""How fast `xlaprof live` shows what happens, what it takes beside many events, and what it costs who is observed.

    python benchmarks/terminal_live.py [--seconds 20] [--rate 5000]
    python benchmarks/terminal_live.py --cost [--pairs 3] [--steps 2000]

The first follows the log of the training in the tests, of which so many events a second are written, in a terminal of
120x40 of its own (a pty). It prints the time from a step's event in the file to its number on the terminal, of single
steps in a quiet log and of each step beside the many events; the share of a core that the UI takes; and frames: how
long its event loop, which draws and answers keys, did not come round. The second trains on `xla` in turns with a UI
beside it and without, and prints the CPU time of the training.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import re
import resource
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
SIZE = (40, 120)
SINGLE = 40  # steps in a quiet log
_BEAT_S = 0.02  # a beat is a turn of the loop: two hundred a second would be 2 % of a core
_EVERY_S = 0.01  # between two writes
_ESCAPE = re.compile(rb"\x1b(\[[0-9;:?<>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
_STEP = re.compile(rb"running\s+step (\d+)")
_TRAINING = """
import sys, torch, torch.nn.functional as F
import xlaprof, xlaprof.runtime as xr
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4).to(xr.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    with xlaprof.StepTrace("train", step_num=step):
        batch = torch.ones(8, 16).to(xr.device())
        loss = F.mse_loss(model(batch), batch[:, :4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        xr.sync()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=int, default=5000, help="events a second")
    parser.add_argument("--cost", action="store_true", help="measure what a UI costs the observed program")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--profile", type=Path, help="write a profile of the UI's main thread here (it is slower then)")
    parser.add_argument("--screen", nargs=2, help=argparse.SUPPRESS)  # the UI: its log, and where its frames go
    args = parser.parse_args()
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # nobody's settings
    if args.screen:
        show(*args.screen, args.profile)
    elif args.cost:
        cost(args.pairs, args.steps)
    else:
        print("load", *(f"{load:.1f}" for load in os.getloadavg()), "of", os.cpu_count(), "cores")
        follow(args.seconds, args.rate, args.profile)


def show(log: str, frames: str, profile: Path | None) -> None:
    """The UI, which notes how late its event loop is."""
    from xlaprof.commands._looking import desk
    from xlaprof.tui.app import LiveApp
    from xlaprof.tui.feed import CALM_S, REST, SHARE, Feed

    late: list[tuple[float, float]] = []

    class Timed(LiveApp):
        CSS_PATH = ROOT / "xlaprof" / "tui" / "live.tcss"  # would be looked for beside this file

        def on_mount(self) -> None:
            self.run_worker(self._beat())

        async def _beat(self) -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(_BEAT_S)
                late.append((began, time.monotonic() - began - _BEAT_S))

    with closing(Feed(log, rest=REST, calm_s=CALM_S, share=SHARE)) as feed:
        feed.open()
        app = Timed(feed.advance, desk=desk(feed))
        if profile is None:
            app.run()
        else:
            import cProfile

            profiler = cProfile.Profile()
            profiler.runcall(app.run)
            profiler.dump_stats(profile)
    Path(frames).write_text(json.dumps(late))


def ui(log: Path, frames: Path, profile: Path | None = None) -> list[str]:
    """The command that opens the UI, which notes its frames."""
    command = [sys.executable, __file__, "--screen", str(log), str(frames)]
    return command + (["--profile", str(profile)] if profile is not None else [])


class Screen:
    """A UI in a terminal of its own; ``seen``: when which step was first on it."""

    def __init__(self, command: list[str]) -> None:
        own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._own = own
        self.seen: list[tuple[float, int]] = []
        self.bytes = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        held = b""
        while True:
            select.select([self._own], [], [])
            try:
                data = os.read(self._own, 1 << 16)
            except OSError:  # the UI has ended
                return
            now = time.monotonic()
            self.bytes += len(data)
            held = (held + data)[-20_000:]
            steps = _STEP.findall(_ESCAPE.sub(b"", held))
            if steps and (not self.seen or int(steps[-1]) > self.seen[-1][1]):
                with self._news:
                    self.seen.append((now, int(steps[-1])))
                    self._news.notify_all()

    def until(self, step: int, patience_s: float = 30.0) -> float:
        """When this step, or a later one, was on the screen."""
        with self._news:
            if not self._news.wait_for(lambda: self.seen and self.seen[-1][1] >= step, patience_s):
                raise SystemExit(f"step {step} was never seen; the last were {self.seen[-3:]}")
            return next(moment for moment, one in self.seen if one >= step)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        os.write(self._own, b"q")
        self.process.wait(30)
        self._reader.join(5)
        os.close(self._own)


def follow(seconds: float, rate: int, profile: Path | None) -> None:
    """Single steps in a quiet log, then many events."""
    from tests.tui.training import Training

    with tempfile.TemporaryDirectory() as folder:
        source, log, frames = (Path(folder) / name for name in ("made.log", "run.log", "frames.json"))
        story = Training(source)
        while len(story.events) < seconds * rate + 20 * SINGLE:
            compiles = story.num % 2000 == 0
            story.train_step(900 * compiles, f"i64[{story.num // 2000 + 1},128]", read=story.num % 3 == 0)
        story.leave()
        steps = grouped(source.read_bytes().splitlines(keepends=True))
        with log.open("wb", buffering=0) as file:
            file.write(b"".join(line for step in steps[:2] for line in step))
            screen = Screen(ui(log, frames, profile))
            try:
                screen.until(1, 20)
                written = 2
                quiet = []
                for number in range(SINGLE):
                    time.sleep(0.3 + 0.017 * (number % 7))  # at no constant moment of the UI's own rhythm
                    file.write(b"".join(steps[written]))
                    began = time.monotonic()
                    quiet.append(screen.until(written) - began)
                    written += 1
                tell("quiet log: a step's event on the screen after", quiet)
                time.sleep(2)
                written_at, busy, events = many(file, steps[written:], rate, seconds, screen, written)
                began, until = written_at[0][0], written_at[-1][0]
                screen.until(written_at[-1][1])
            finally:
                screen.close()
        tell(f"{events / (until - began):,.0f} events/s: after", delays(written_at, screen.seen))
        print(f"the UI took {busy / (until - began):.0%} of a core; {screen.bytes / 1e6:.1f} MB went to the terminal")
        late = [delay for at, delay in json.loads(frames.read_text()) if began <= at <= until]
        tell("the event loop came round late by", late)
        print(f"of {len(late):,} turns {sum(delay > 0.1 for delay in late):,} later than 100 ms")


def grouped(lines: list[bytes]) -> list[list[bytes]]:
    """The lines of a log up to each step's end."""
    steps: list[list[bytes]] = [[]]
    for line in lines:
        steps[-1].append(line)
        if json.loads(line)["k"] == "step":
            steps.append([])
    return steps[:-1]


def many(
    file: object, steps: list[list[bytes]], rate: int, seconds: float, screen: Screen, first: int
) -> tuple[list[tuple[float, int]], float, int]:
    """Write so many events a second; when each step was written, the UI's CPU seconds meanwhile, and events."""
    began, before = time.monotonic(), screen.cpu_s()
    written, at, events = [], 0, 0
    while (gone := time.monotonic() - began) < seconds and at < len(steps):
        batch = []
        while events + len(batch) < rate * gone and at < len(steps):
            batch += steps[at]
            at += 1
        if batch:
            file.write(b"".join(batch))  # type: ignore[attr-defined]
            written.append((time.monotonic(), first + at - 1))
            events += len(batch)
        time.sleep(_EVERY_S)
    return written, screen.cpu_s() - before, events


def delays(written: list[tuple[float, int]], seen: list[tuple[float, int]]) -> list[float]:
    """Of each write, the time until its last step, or a later one, was on the screen."""
    found, at = [], 0
    for moment, step in written:
        while at < len(seen) and seen[at][1] < step:
            at += 1
        if at < len(seen):
            found.append(seen[at][0] - moment)
    return found


def tell(what: str, seconds: list[float]) -> None:
    ordered = sorted(1000 * one for one in seconds)
    print(
        f"{what} {statistics.median(ordered):.0f} ms (median), {ordered[int(0.95 * len(ordered))]:.0f} (95 %), "
        f"{ordered[-1]:.0f} (most), of {len(ordered):,}"
    )


def cost(pairs: int, steps: int) -> None:
    """The training's CPU and wall time, in turns with a UI beside it and without."""
    for _ in range(pairs):
        for beside in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                log, script = Path(folder) / "run.log", Path(folder) / "train.py"
                script.write_text(_TRAINING)
                log.touch()
                screen = Screen(ui(log, Path(folder) / "frames.json")) if beside else None
                environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PJRT_DEVICE": "CPU"}
                command = [sys.executable, "-m", "xlaprof", "run", "--no-report", "-o", str(log), script, f"{steps}"]
                began = time.monotonic()
                training = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
                _, status, used = os.wait4(training.pid, 0)
                wall = time.monotonic() - began
                training.returncode = os.waitstatus_to_exitcode(status)
                if screen is not None:
                    screen.close()
                tell_cost("with a UI" if beside else "alone", used, wall, training.returncode)


def tell_cost(how: str, used: resource.struct_rusage, wall: float, code: int) -> None:
    cpu = used.ru_utime + used.ru_stime
    print(f"{how:<10} {cpu:.2f} s of CPU, {wall:.2f} s, exit code {code}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
