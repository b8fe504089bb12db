"""A recording as a picture: what the host did, in colours, and under it when the device was busy.

    python benchmarks/timeline.py run.log -o run.svg [--title TEXT] [--from 0 --to 12.5]

The picture is an SVG without scripts, fonts or links; it follows the reader's light or dark theme, and says of each
stretch what it was where the pointer rests on it. A column of the picture has the colour of what took most of its time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from xlaprof import log
from xlaprof.analysis.places import short
from xlaprof.analysis.run import Run
from xlaprof.analysis.timeline import host
from xlaprof.text.quantities import duration

COLUMNS = 1080
LEFT, TOP, LANE, GAP, ROW = 76, 50, 54, 26, 22
_LETTER = 6.6  # mean width
WIDTH = LEFT + COLUMNS + 24

#: cause of host time -> (name, class in the picture)
NAMED = {
    host.COMPILE: ("compiles a graph", "compile"),
    host.TRANSFER: ("waits for a value from the device", "wait"),
    host.FALLBACK: ("computes for the device", "fallback"),
    host.DISPATCH: ("hands a graph to the device", "dispatch"),
    host.UPLOAD: ("copies to the device", "upload"),
    host.DATA: ("waits for data", "data"),
    host.GC: ("collects garbage", "gc"),
}
PYTHON = ("runs Python and records operations", "python")
BUSY = ("device computes", "busy")

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #333 }
.title { font-size: 16px; font-weight: 600 } .axis { stroke: #999; stroke-width: 1 } .lane { fill: #f1f1f1 }
.compile { fill: #a4339b } .wait { fill: #d33f35 } .fallback { fill: #c98a00 } .dispatch { fill: #a8641c }
.upload { fill: #1a98ad } .data { fill: #c9b400 } .gc { fill: #e0709c } .python { fill: #5b84c4 }
.busy { fill: #1c7c3c }
@media (prefers-color-scheme: dark) {
  svg { background: #16181c } text { fill: #d6d6d6 } .lane { fill: #25282e } .axis { stroke: #777 }
  .compile { fill: #cf6bc8 } .wait { fill: #ef6a5f } .fallback { fill: #e2ac3a } .dispatch { fill: #d9924a }
  .upload { fill: #4fc0d4 } .data { fill: #dccb45 } .gc { fill: #ee9cbd } .python { fill: #7ba1dd }
  .busy { fill: #4fb872 }
}
"""


class Stretch(NamedTuple):
    """One colour of a lane, in ns of the recording's clock."""

    start: int
    end: int
    name: str
    style: str
    place: str = ""


class Timeline:
    """The lanes of a recording, from the moment it knew its device."""

    def __init__(self, path: Path) -> None:
        run = Run()
        seen = None
        for event in log.read(path):
            run.feed(event)
            if seen is None and run.device is not None:
                seen = run.device.t
        run = run.settled()
        batches = [batch for part in run.window.schedule.parts() for _, batch in part.batches]
        self.start = seen if seen is not None else run.begin or 0
        self.end = run.last
        self.host = list(_host(run, batches, self.start))
        self.device = [
            Stretch(one.start, one.end, *BUSY) for batch in batches for one in batch.executions if one.end > self.start
        ]

    def svg(self, title: str, begin_s: float = 0.0, end_s: float | None = None) -> str:
        """The picture of ``[begin_s, end_s)``."""
        start = self.start + round(begin_s * 1e9)
        end = self.end if end_s is None else min(self.end, self.start + round(end_s * 1e9))
        end = max(end, start + 1)
        used: dict[str, str] = {}
        parts = []
        bottom = TOP + 2 * LANE + GAP + 48
        height = bottom + ROW + 14
        for number, (label, stretches) in enumerate((("host", self.host), ("device", self.device))):
            top = TOP + number * (LANE + GAP)
            parts.append(f'<text x="{LEFT - 12}" y="{top + LANE / 2 + 5:g}" text-anchor="end">{label}</text>')
            parts.append(f'<rect class="lane" x="{LEFT}" y="{top}" width="{COLUMNS}" height="{LANE}"/>')
            for first, last, stretch in _columns(stretches, start, end):
                used[stretch.style] = stretch.name
                where = f", {stretch.place}" if stretch.place else ""
                told = escape(f"{stretch.name}{where}: {duration((stretch.end - stretch.start) / 1e9)}")
                parts.append(
                    f'<rect class="{stretch.style}" x="{LEFT + first}" y="{top}" width="{last - first}" '
                    f'height="{LANE}"><title>{told}</title></rect>'
                )
        parts += _axis(start - self.start, end - self.start, TOP + 2 * LANE + GAP + 4)
        parts += _legend(used, bottom)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
            f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
        )


def _host(run: Run, batches: Iterable, start: int) -> Iterator[Stretch]:
    for batch in batches:
        cursor = max(start, batch.start)
        for begin, stop, cause, stack in batch.segments:
            if stop <= cursor:
                continue
            if begin > cursor:
                yield Stretch(cursor, begin, *PYTHON)
            name, style = NAMED.get(cause, PYTHON)
            if cause >= host.SCOPE:
                name = f"is in {run.names.text(cause - host.SCOPE)}"
            place = run.names.place(stack)
            yield Stretch(max(cursor, begin), stop, name, style, short(place) if place.line else "")
            cursor = stop
        if batch.end > cursor:
            yield Stretch(cursor, batch.end, *PYTHON)


def _columns(stretches: list[Stretch], start: int, end: int) -> Iterator[tuple[int, int, Stretch]]:
    """Runs of columns that have most of one stretch or style: first and last column, and the stretch to tell."""
    each = (end - start) / COLUMNS
    found: list[tuple[int, str, Stretch]] = []
    held: dict[int, dict[str, int]] = {}
    longest: dict[tuple[int, str], Stretch] = {}
    for stretch in stretches:
        begin, stop = max(stretch.start, start), min(stretch.end, end)
        if stop <= begin:
            continue
        for column in range(int((begin - start) / each), min(COLUMNS - 1, int((stop - 1 - start) / each)) + 1):
            left = start + column * each
            ns = min(stop, left + each) - max(begin, left)
            styles = held.setdefault(column, {})
            styles[stretch.style] = styles.get(stretch.style, 0) + round(ns)
            known = longest.get((column, stretch.style))
            if known is None or stretch.end - stretch.start > known.end - known.start:
                longest[column, stretch.style] = stretch
    for column, styles in sorted(held.items()):
        style = max(styles, key=lambda style: styles[style])
        if sum(styles.values()) * 2 >= each:  # else it is blank rather than anything
            found.append((column, style, longest[column, style]))
    for _, group in groupby(enumerate(found), key=lambda one: (one[1][0] - one[0], one[1][1])):
        columns = [one for _, one in group]
        yield columns[0][0], columns[-1][0] + 1, max((one[2] for one in columns), key=lambda one: one.end - one.start)


def _axis(start: int, end: int, top: float) -> Iterator[str]:
    span = (end - start) / 1e9
    tick = 10.0**-9
    while span / tick > 8:
        tick *= 2 if f"{tick:.0e}"[0] in "15" else 2.5
    yield f'<line class="axis" x1="{LEFT}" y1="{top}" x2="{LEFT + COLUMNS}" y2="{top}"/>'
    at = -(-start // round(tick * 1e9)) * tick
    while at <= end / 1e9:
        x = LEFT + (at - start / 1e9) / span * COLUMNS
        yield f'<line class="axis" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + 5}"/>'
        yield f'<text x="{x:.1f}" y="{top + 20}" text-anchor="middle">{at:g} s</text>'
        at = round(at + tick, 9)


def _legend(used: dict[str, str], y: float) -> Iterator[str]:
    x = float(LEFT)
    for style, name in used.items():
        width = 17 + _LETTER * len(name) + 22
        if x + width > WIDTH:
            x, y = float(LEFT), y + ROW
        yield f'<rect class="{style}" x="{x:g}" y="{y - 11:g}" width="12" height="12"/>'
        yield f'<text x="{x + 17:g}" y="{y:g}">{escape(name)}</text>'
        x += width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--title", default="")
    parser.add_argument("--from", dest="begin", type=float, default=0.0, help="seconds, from when the device was known")
    parser.add_argument("--to", dest="end", type=float)
    args = parser.parse_args()
    title = args.title or args.log.name
    args.output.write_text(Timeline(args.log).svg(title, args.begin, args.end))


if __name__ == "__main__":
    main()
