"""How fast the terminal UI answers the keys that move its step cursor, and that zoom and pan its charts.

    python benchmarks/terminal_keys.py [--events 1000000 | --log run.log] [--times 20]

The log is that of `terminal_ui.py`. The UI has a terminal (a pty) of 120x40, then one of 200x60. A key is sent; what is
measured is the time until the terminal gets its answer, until it has got all of it (what is read or painted in a thread
too), and the CPU time of the UI meanwhile, of all its threads.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
SIZES = ((120, 40), (200, 60))
STILL_S = 0.4  # after so much time without output a key has been answered
LEFT, RIGHT, FAR_LEFT, FAR_RIGHT = b"\x1b[D", b"\x1b[C", b"\x1b[1;2D", b"\x1b[1;2C"
#: keys before, what is measured, its keys in turn; in this order, for each goes on from the one before
TURNS = (
    ((b"g", b"1000\r"), "step cursor: a step on, a step back", (RIGHT, RIGHT, LEFT)),
    ((), "step cursor: ten steps on", (FAR_RIGHT,)),
    ((), "Step time: zoom in and out", (b"+", b"+", b"-", b"-")),
    ((b"f", b"6"), "Timeline of the whole run: cursor", (RIGHT, b"\x1b[B", LEFT, b"\x1b[A")),
    ((), "Timeline: zoom in, out", (b"+",) * 6 + (b"-",) * 6),
    ((b"+", b"+", b"+"), "Timeline: pan", (FAR_LEFT, FAR_RIGHT)),
)


class Terminal:
    """The UI on a log, in a terminal of its own."""

    def __init__(self, log: Path, width: int, height: int) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "xlaprof", "tui", str(log)]
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT, start_new_session=True
        )
        os.close(theirs)

    def cpu_s(self) -> float:
        """Of all threads, to the nanosecond."""
        ran = 0
        for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                ran += int((thread / "schedstat").read_text().split()[0])
        return ran / 1e9

    def press(self, keys: bytes) -> tuple[float, float, float]:
        """Seconds to the first of what is drawn for ``keys``, to the last, and of CPU till then."""
        before, began = self.cpu_s(), time.monotonic()
        os.write(self._own, keys)
        first = last = busy = 0.0
        while select.select([self._own], [], [], STILL_S)[0]:
            os.read(self._own, 1 << 16)
            last, busy = time.monotonic() - began, self.cpu_s() - before
            first = first or last
        return first, last, busy

    def until_still(self, seconds: float) -> None:
        """Until nothing has been drawn for so long."""
        while select.select([self._own], [], [], seconds)[0]:
            os.read(self._own, 1 << 16)

    @contextlib.contextmanager
    def open(self) -> Iterator[Terminal]:
        try:
            yield self
        finally:
            self._process.kill()
            self._process.wait(30)
            os.close(self._own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--log", type=Path, help="open this log instead of a made one")
    parser.add_argument("--times", type=int, default=20, help="keys of each kind")
    args = parser.parse_args()
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # nobody's settings
    with tempfile.TemporaryDirectory() as folder:
        log = args.log or Path(folder) / "run.log"
        if not args.log:
            from benchmarks.terminal_ui import write

            write(log, args.events)
        for width, height in SIZES:
            print(f"{width}x{height}, load {os.getloadavg()[0]:.1f}; ms: median (slowest)", flush=True)
            measure(log, width, height, args.times)


def measure(log: Path, width: int, height: int, times: int) -> None:
    """Print what each kind of key takes."""
    with Terminal(log, width, height).open() as terminal:
        terminal.until_still(5.0)
        for before, what, keys in TURNS:
            for key in before:
                terminal.press(key)  # the cursor of a question blinks: it is never still for long
            terminal.until_still(1.0)
            taken = [terminal.press(keys[number % len(keys)]) for number in range(times)]
            told = [f"{name} {figures(values)}" for name, values in zip(_NAMES, zip(*taken, strict=True), strict=True)]
            print(f"  {what}: {'; '.join(told)}", flush=True)


_NAMES = ("first drawn", "all drawn", "CPU")


def figures(seconds: tuple[float, ...]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ({1000 * max(seconds):.0f})"


if __name__ == "__main__":
    main()
