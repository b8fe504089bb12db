"""What the device was waiting for."""

from __future__ import annotations

import msgspec

from xlaprof.analysis.model import IdleStat, Report
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.quantities import duration, percent
from xlaprof.tui.widgets.bars import bar_rows
from xlaprof.tui.widgets.panel import Line, Panel, quiet

_CAUSES, _WORTH_A_ROW = 8, 0.02  # at most so many causes get a row of their own, each above this share of idle time


class Shown(msgspec.Struct, frozen=True):
    """Of the whole run, or of what ``at`` says."""

    stat: IdleStat
    at: str = ""


class IdlePanel(Panel[Shown]):
    TITLE = "Device idle"
    HELP = "the device had nothing to do, and why"
    ORDER = 3

    _at: Moment | None = None

    def explain(self, moment: Moment | None) -> None:
        """Show the idle time in the step."""
        self._at = moment
        self.pick_again()

    def pick(self, report: Report) -> Shown:
        at = self._at
        if at is None or at.inside is None:
            return Shown(report.idle)
        return Shown(at.inside.idle, f"at {at.bar.title}: " + "about " * at.inside.about)

    def note(self, data: Shown) -> str:
        stat = data.stat
        if stat.window_s <= 0:
            return ""
        return f"{data.at}{percent(stat.idle_s / stat.window_s)} of {duration(stat.window_s)}"

    def lines(self, data: Shown, width: int) -> list[Line]:
        stat = data.stat
        if stat.window_s <= 0:
            return [quiet("nothing has run on the device yet")]
        if stat.idle_s <= 0:
            return [quiet("the device was never idle")]
        rows = [(cause, seconds, "$warning") for cause, seconds in stat.causes]
        kept = max(1, sum(seconds >= _WORTH_A_ROW * stat.idle_s for _, seconds, _ in rows[:_CAUSES]))
        if len(rows) > kept + 1:
            rest = rows[kept:]
            rows[kept:] = [(f"{len(rest)} smaller", sum(seconds for _, seconds, _ in rest), "$text-muted")]
        return bar_rows(rows, stat.idle_s, width)


PANEL = IdlePanel
