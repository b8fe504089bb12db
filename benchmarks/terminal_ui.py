"""How fast the terminal UI opens a long log; and with ``--pictures`` its pictures in docs/pictures/.

    python benchmarks/terminal_ui.py [--events 1000000 | --scopes 5000000 | --log run.log]
    python benchmarks/terminal_ui.py --pictures

The log is that of the training in the tests; with ``--scopes`` what xlaprof records of a program that enters so many,
ten in a step: most steps as their sums. The pictures show sample_traces/decoder.log, and what
`xlaprof run --code examples/compiled.py` records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
_SETTLES_S = 0.5
#: takes the path of the log and the number of scopes, a step among them
_SCOPES = """
import sys, xlaprof
parts = [xlaprof.Trace(name) for name in "load embed attention mlp loss backward clip optimizer log".split()]
with xlaprof.record(sys.argv[1]):
    for number in range(int(sys.argv[2]) // (len(parts) + 1)):
        with xlaprof.StepTrace("train", step_num=number):
            for part in parts:
                with part:
                    pass
"""
#: picture -> log ("": recorded for it), width, height, keys
PICTURES = {
    "tui-step": ("decoder", 120, 40, ("g", "2", "1", "enter")),
    "tui-timeline": ("decoder", 120, 40, ("6", *["down"] * 7)),
    "tui-memory": ("decoder", 120, 24, ("M",)),
    "tui-code": ("", 120, 40, ("8", "enter", *["down"] * 17)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pictures", action="store_true", help="draw the pictures of docs/live.md")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, help="open what is recorded of a program with so many scopes")
    parser.add_argument("--log", type=Path, help="open this log instead of a made one")
    args = parser.parse_args()
    if args.pictures:
        os.environ |= {"XDG_CONFIG_HOME": tempfile.mkdtemp(), "COLORTERM": "truecolor"}  # nobody's settings
        with tempfile.TemporaryDirectory() as folder:
            for name, (log, width, height, keys) in PICTURES.items():
                path = ROOT / "sample_traces" / f"{log}.log" if log else record(Path(folder))
                asyncio.run(draw(path, ROOT / "docs" / "pictures" / f"{name}.svg", width, height, keys))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.log"
        if args.scopes:
            subprocess.run([sys.executable, "-c", _SCOPES, str(path), str(args.scopes)], check=True)
        elif not args.log:
            write(path, args.events)
        opening(args.log or path)


def record(folder: Path) -> Path:
    """The recording, with the programs' code, of an example."""
    example = shutil.copy(ROOT / "examples" / "compiled.py", folder)
    command = [sys.executable, "-m", "xlaprof", "run", "--code", "--no-report", "-o", str(folder / "run.log"), example]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "run.log"


def write(path: Path, events: int) -> None:
    """A log of so many events in which now and then a graph is compiled again."""
    from tests.tui.training import Training

    story = Training(path)
    story.train_step(compile_ms=1500)
    for step in range(events):
        if len(story.events) >= events:
            break
        if step % 2000 == 1999:
            story.train_step(compile_ms=900, shape=f"i64[{step % 97 + 1},128]")
        story.train_step(read=step % 3 == 0)
    story.end()


def opening(path: Path) -> None:
    """Print the CPU time until report, steps and timeline are on the screen, and the most memory."""
    from xlaprof.collection import keep_memory
    from xlaprof.tui.feed import Feed

    began = time.process_time()
    keep_memory()
    with closing(Feed(str(path))) as feed:
        feed.open()
        while (now := feed.advance()).link == "catching up":
            pass
        assert now.report is not None
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{path.stat().st_size / 2**20:.0f} MiB, {now.report.run.events:,} events")
    print(f"{time.process_time() - began:.1f} s of CPU, {memory:.0f} MiB")


async def draw(log: Path, path: Path, width: int, height: int, keys: tuple[str, ...]) -> None:
    """A picture of the recording after ``keys``."""
    from xlaprof.commands._looking import Whole, desk
    from xlaprof.sources import files
    from xlaprof.tui.app import LiveApp
    from xlaprof.tui.feed import Feed

    with closing(Feed(shown := os.path.relpath(log), tail=Whole(files.read(shown)))) as feed:
        feed.open()
        app = LiveApp(feed.advance, every_s=None, desk=desk(feed))
        async with app.run_test(size=(width, height)) as pilot:
            while not await app.refresh_now():
                pass
            await pilot.pause(2 * _SETTLES_S)
            for key in keys:
                await pilot.press(key)
                await pilot.pause(_SETTLES_S)  # what is read or painted in a thread
            await pilot.pause()
            path.write_text(app.export_screenshot(title="xlaprof tui"))
    print(path, f"{path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
