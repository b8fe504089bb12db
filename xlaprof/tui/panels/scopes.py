"""The named scopes of the program, those with most time first; scopes left by an exception are red."""

from __future__ import annotations

import msgspec
from rich.cells import cell_len

from xlaprof.analysis.model import Report, ScopeStat
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.cells import fit
from xlaprof.text.quantities import duration
from xlaprof.tui.widgets.panel import Line, Panel, line, quiet

_NAME = 14  # cells of a scope's name, at least
_WHOLE = 32  # cells up to which a name is worth more than the figures that are dropped first,
_EXTRA = 2  # up to this rank
_WIDEST = 80  # beyond this, name and figures are too far apart to be read as one line
#: Columns: heading, width, field, and a rank: a narrow panel drops the lowest first.
_COLUMNS = (
    ("count", 8, "count", 3),
    ("total", 9, "total_s", 6),
    ("a step", 9, "", 5),
    ("self", 9, "self_s", 2),
    ("median", 9, "median_s", 1),
    ("max", 9, "max_s", 0),
    ("idle", 9, "device_idle_s", 4),
)


class Shown(msgspec.Struct, frozen=True):
    """Of the whole run, or of what ``at`` says."""

    scopes: tuple[ScopeStat, ...]
    at: str = ""


class ScopesPanel(Panel[Shown]):
    TITLE = "Scopes"
    HELP = "a step: the total by the steps that have it; self: without the scopes inside; idle: the device's"
    ORDER = 4

    _at: Moment | None = None

    def explain(self, moment: Moment | None) -> None:
        """Show the scopes in the step."""
        self._at = moment
        self.pick_again()

    def pick(self, report: Report) -> Shown:
        at = self._at
        if at is None or at.inside is None:
            return Shown(report.scopes)
        return Shown(at.inside.scopes, f"at {at.bar.title}" + ", about" * at.inside.about)

    def note(self, data: Shown) -> str:
        return data.at

    def lines(self, data: Shown, width: int) -> list[Line]:
        if not data.scopes:
            return [quiet(f"none {data.at}" if data.at else 'none: xlaprof.Trace("name") makes one')]
        columns = list(_COLUMNS)
        longest = max(_NAME, *(min(cell_len(one.name), _WHOLE) for one in data.scopes))
        while columns:
            least = min(columns, key=lambda c: c[3])
            if (_NAME if least[3] > _EXTRA else longest) + sum(c[1] for c in columns) <= width:
                break
            columns.remove(least)
        name_width = max(1, min(width, _WIDEST) - sum(c[1] for c in columns))
        top = " " * name_width + "".join(fit(name, cells, right=True) for name, cells, _, _ in columns)
        rows = [line((top, "$text-muted"))]
        for scope in data.scopes:
            figures = "".join(fit(_figure(scope, field), cells, right=True) for _, cells, field, _ in columns)
            rows.append(line((fit(scope.name, name_width), "$text-error" if scope.errors else ""), figures))
        return rows


def _figure(scope: ScopeStat, field: str) -> str:
    if not field:
        return duration(scope.total_s / scope.steps) if scope.steps else ""
    value = getattr(scope, field)
    return f"{value:,}" if field == "count" else duration(value)


PANEL = ScopesPanel
