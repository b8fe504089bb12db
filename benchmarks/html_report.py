"""What ``xlaprof report --html`` costs on a long log, and how the page behaves in a browser; its pictures in the docs.

    python benchmarks/html_report.py [--events 1000000]
    python benchmarks/html_report.py --pictures

The log is the training of benchmarks/analyse_log.py. Wanted: a million events make a page below 20 MB, which opens
within five seconds and draws each frame of a zoom or a move within 100 ms. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "sample_traces" / "decoder.log"
AIM_MB, AIM_OPEN_S, AIM_FRAME_MS = 20.0, 5.0, 100.0

#: zooms in and out and moves, and returns the ms that each frame took to draw
FRAMES = """() => {
  const plot = xlaprof.timePlot, took = [];
  const frame = () => { const begun = performance.now(); plot.paint(); took.push(performance.now() - begun); };
  plot.show(0, plot.whole);
  for (let n = 0; n < 24; n++) { frame(); plot.zoom(0.6, plot.whole * 0.37); }
  for (let n = 0; n < 24; n++) { frame(); plot.zoom(1.6, plot.whole * 0.37); }
  for (let n = 0; n < 20; n++) { frame(); plot.pan(0.2); }
  return took;
}"""


def page(log: Path, out: Path) -> None:
    command = [sys.executable, "-m", "xlaprof", "report", str(log), "--html", str(out)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


def measure(events: int) -> dict[str, float]:
    """The figures of a log of so many events."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.analyse_log import training, write

    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder, "run.log"), Path(folder, "run.html")
        write(log, training(), events)
        begun = time.perf_counter()
        page(log, out)
        wall = time.perf_counter() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        with browser() as chromium:
            tab = chromium.new_page(viewport={"width": 1280, "height": 800})
            begun = time.perf_counter()
            tab.goto(out.as_uri())
            tab.wait_for_selector("[data-ready]")
            opened = time.perf_counter() - begun
            frames = sorted(tab.evaluate(FRAMES))
        return {
            "events": events,
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),
            "wall_s": round(wall, 1),
            "peak_mb": round(used.ru_maxrss / 1024),
            "page_mb": round(out.stat().st_size / 1e6, 1),
            "opened_s": round(opened, 2),
            "frame_median_ms": round(frames[len(frames) // 2], 1),
            "frame_worst_ms": round(frames[-1], 1),
        }


def pictures() -> None:
    """Pictures of the page on a recording of sample_traces, in both themes."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        shutil.copy(SAMPLE, folder)
        out = Path(folder, "decoder.html")
        os.environ["XLAPROF_TRACEBACK"] = "1"
        command = [sys.executable, "-m", "xlaprof", "report", "decoder.log", "--html", "decoder.html"]
        subprocess.run(command, check=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)})
        for name, theme in (("html-report", "light"), ("html-report-timeline", "dark")):
            tab = chromium.new_page(viewport={"width": 1200, "height": 1000}, color_scheme=theme)
            tab.goto(out.as_uri())
            tab.wait_for_selector("[data-ready]")
            if theme == "dark":
                tab.evaluate("document.querySelector('header.bar').hidden = true")
                tab.evaluate("xlaprof.timePlot.show(xlaprof.timePlot.whole * 0.54, xlaprof.timePlot.whole * 0.78)")
                tab.evaluate(
                    "(() => { const row = xlaprof.timeline.rows.find((one) => one.of === 'gap');"
                    " xlaprof.timeline.pick(row, row.at(9.2e9, 0)); })()"  # while the small batch is compiled
                )
                tab.evaluate("xlaprof.timePlot.paint()")
                tab.locator("#timeline").screenshot(path=PICTURES / f"{name}.png")
            else:
                tab.screenshot(path=PICTURES / f"{name}.png")
            tab.close()
    for file in sorted(PICTURES.glob("html-report*.png")):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e3:.0f} kB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pictures", action="store_true", help="write the pictures of the docs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.pictures:
        pictures()
        return 0
    figures = measure(args.events)
    if args.json:
        print(json.dumps(figures))
        return 0
    print(
        f"{figures['events']:,} events: {figures['cpu_s']:.1f} s of CPU, {figures['wall_s']:.1f} s on the clock, "
        f"peak {figures['peak_mb']:.0f} MB; a page of {figures['page_mb']:.1f} MB (aim {AIM_MB:.0f} MB)\n"
        f"in the browser: open after {figures['opened_s']:.2f} s (aim {AIM_OPEN_S:.0f} s), "
        f"a frame of the timeline {figures['frame_median_ms']:.1f} ms, the slowest {figures['frame_worst_ms']:.1f} ms "
        f"(aim {AIM_FRAME_MS:.0f} ms)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
