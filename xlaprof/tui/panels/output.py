"""Output: what the program of ``xlaprof run --live`` writes to its terminal."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import RichLog, Static

from xlaprof.text.quantities import plural
from xlaprof.tui.program import LINES, Output
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.panel import Region, heading

_EVERY_S = 0.1


class OutputPanel(Container, Region):
    """The lines that have ended, and below them the one that has not."""

    TITLE = "Output"
    HELP = "what the program writes; escapes are left out"
    ORDER = 17
    PLACE = "page"
    LIVE = True
    KEY = "u"

    _written = (0, "")  # lines that ended, and the one that has not

    def compose(self) -> ComposeResult:
        yield RichLog(id="output-lines", max_lines=LINES, markup=False, highlight=False)
        yield Static(id="output-last", markup=False)

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self.take)

    def show(self, snapshot: Snapshot) -> None:
        """The output is no part of the recording."""
        self.take()

    def take(self) -> None:
        """Show what has been written since."""
        desk = getattr(self.app, "desk", None)
        if desk is None or desk.program is None:
            return
        output: Output = desk.program.output
        output.poll()  # else the pipe fills
        if not self.has_class("-shown") or (output.count, output.last) == self._written:
            return
        lines, new = self.query_one(RichLog), min(output.count - self._written[0], len(output.lines))
        for line in list(output.lines)[len(output.lines) - new :]:
            lines.write(Text(line, no_wrap=True, end=""))
        self._written = output.count, output.last
        self.query_one("#output-last", Static).update(output.last)
        lines.border_title = heading("Output", plural(output.count, "line"))

    def stops(self) -> list[Widget]:
        return [self.query_one(RichLog)]


PANEL = OutputPanel
