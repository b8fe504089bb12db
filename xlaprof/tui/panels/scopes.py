"""The named scopes of the program, those with most time first; scopes left by an exception are red."""

from __future__ import annotations

from xlaprof.analysis.model import Report, ScopeStat
from xlaprof.text.cells import fit
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

_NAME = 14  # cells of a scope's name, at least
_WIDEST = 80  # beyond this, name and figures are too far apart to be read as one line
#: Columns: heading, width, field, and a rank: a narrow panel drops the lowest first.
_COLUMNS = (
    ("count", 8, "count", 3),
    ("total", 9, "total_s", 5),
    ("self", 9, "self_s", 2),
    ("median", 9, "median_s", 1),
    ("max", 9, "max_s", 0),
    ("idle", 9, "device_idle_s", 4),
)


class ScopesPanel(Panel[tuple[ScopeStat, ...]]):
    TITLE = "Scopes"
    HELP = "self: without the scopes inside; idle: the device's"
    ORDER = 4

    def pick(self, report: Report) -> tuple[ScopeStat, ...]:
        return report.scopes

    def lines(self, data: tuple[ScopeStat, ...], width: int) -> list[Line]:
        if not data:
            return [quiet('none: xlaprof.Trace("name") makes one')]
        columns = list(_COLUMNS)
        while columns and _NAME + sum(c[1] for c in columns) > width:
            columns.remove(min(columns, key=lambda c: c[3]))
        name_width = max(1, min(width, _WIDEST) - sum(c[1] for c in columns))
        top = " " * name_width + "".join(fit(name, cells, right=True) for name, cells, _, _ in columns)
        rows = [line((top, "$text-muted"))]
        for scope in data:
            figures = ""
            for _, cells, field, _ in columns:
                value = getattr(scope, field)
                figures += fit(f"{value:,}" if field == "count" else duration(value), cells, right=True)
            rows.append(line((fit(scope.name, name_width), "$text-error" if scope.errors else ""), figures))
        return rows


PANEL = ScopesPanel
