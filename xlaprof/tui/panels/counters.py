"""Counters: exact totals under PyTorch/XLA's names; fallbacks stand out."""

from __future__ import annotations

from xlaprof.analysis.model import Report
from xlaprof.analysis.views.course import Bar
from xlaprof.text.cells import fit
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.panel import Line, Panel, heading, line, quiet

Counter = tuple[str, int, float]  # name, count, seconds (0: not a timed one)

#: PyTorch/XLA's own, in the order one asks; the others follow by name.
FIRST = (
    "CompileTime",
    "ExecuteTime",
    "TransferFromDeviceTime",
    "TransferToDeviceTime",
    "UncachedCompile",
    "CachedCompile",
)
_SECONDS = 9  # cells of "   3.21 s"
_WIDEST = 60  # beyond this, name and figure are too far apart to be read as one line


def ordered_counters(report: Report) -> tuple[Counter, ...]:
    """Counters that counted something: the well-known first, fallbacks (``aten::``) next, others by name."""

    def rank(name: str) -> tuple[int, str]:
        return (FIRST.index(name), "") if name in FIRST else (len(FIRST) + (not name.startswith("aten::")), name)

    names = sorted((n for n, c in report.counters.items() if c > 0), key=rank)
    return tuple((n, report.counters[n], report.seconds.get(n, 0.0)) for n in names)


class CountersPanel(Panel[tuple[Counter, ...]]):
    TITLE = "Counters"
    HELP = "of the whole run, as PyTorch/XLA counts: a recording does not tell them by step"
    ORDER = 5

    def follow(self, bar: Bar | None) -> None:
        """Say that this is not the step's, while the other panels show a step."""
        self.border_title = heading(self.TITLE, "" if bar is None else "of the whole run")

    def pick(self, report: Report) -> tuple[Counter, ...]:
        return ordered_counters(report)

    def lines(self, data: tuple[Counter, ...], width: int) -> list[Line]:
        if not data:
            return [quiet("nothing counted yet")]
        number = max(len(f"{c:,}") for _, c, _ in data) + 1
        name_width = max(1, min(width, _WIDEST) - number - _SECONDS)
        return [
            line(
                (fit(name, name_width), "$text-warning" if name.startswith("aten::") else ""),
                fit(f"{times:,}", number, right=True),
                (fit(duration(seconds) if seconds > 0 else "", _SECONDS, right=True), "$text-muted"),
            )
            for name, times, seconds in data
        ]


PANEL = CountersPanel
