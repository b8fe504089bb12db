"""Panels of figures in columns: counters and scopes."""

from __future__ import annotations

from xlaprof.analysis.model import Report, ScopeStat
from xlaprof.text.cells import fit
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

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
_NAME = 14  # cells of a scope's name, at least
_WIDEST = 60  # beyond this, name and figure are too far apart to be read as one line


def ordered_counters(report: Report) -> tuple[Counter, ...]:
    """Counters that counted something: the well-known first, fallbacks (``aten::``) next, others by name."""

    def rank(name: str) -> tuple[int, str]:
        return (FIRST.index(name), "") if name in FIRST else (len(FIRST) + (not name.startswith("aten::")), name)

    names = sorted((n for n, c in report.counters.items() if c > 0), key=rank)
    return tuple((n, report.counters[n], report.seconds.get(n, 0.0)) for n in names)


class CountersPanel(Panel[tuple[Counter, ...]]):
    """Exact totals under PyTorch/XLA's names; fallbacks stand out."""

    TITLE = "Counters"

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


#: Columns of the scopes table: heading, width, field, and how long it is kept as the panel gets narrow.
_COLUMNS = (
    ("count", 8, "count", 3),
    ("total", 9, "total_s", 5),
    ("self", 9, "self_s", 2),
    ("median", 9, "median_s", 1),
    ("max", 9, "max_s", 0),
    ("idle", 9, "device_idle_s", 4),
)


class ScopesPanel(Panel[tuple[ScopeStat, ...]]):
    """The program's named scopes, those with most time first; one that an exception has left is red."""

    TITLE = "Scopes"

    def pick(self, report: Report) -> tuple[ScopeStat, ...]:
        return report.scopes

    def lines(self, data: tuple[ScopeStat, ...], width: int) -> list[Line]:
        if not data:
            return [quiet('none: xlaprof.Trace("name") makes one')]
        columns = list(_COLUMNS)
        while columns and _NAME + sum(c[1] for c in columns) > width:
            columns.remove(min(columns, key=lambda c: c[3]))
        name_width = max(1, min(width, _WIDEST + 20) - sum(c[1] for c in columns))
        top = " " * name_width + "".join(fit(name, cells, right=True) for name, cells, _, _ in columns)
        rows = [line((top, "$text-muted"))]
        for scope in data:
            figures = ""
            for _, cells, field, _ in columns:
                value = getattr(scope, field)
                figures += fit(f"{value:,}" if field == "count" else duration(value), cells, right=True)
            rows.append(line((fit(scope.name, name_width), "$text-error" if scope.errors else ""), figures))
        return rows
