"""The application: asks the feed for snapshots, hands them to the widgets, and answers keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Footer, ProgressBar, Static

from xlaprof.text.safe import for_screen
from xlaprof.tui import panels
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.themes import DARK, LIGHT
from xlaprof.tui.widgets.help import HelpScreen
from xlaprof.tui.widgets.panel import Region
from xlaprof.tui.widgets.status import StatusBar
from xlaprof.tui.widgets.tabs import Tab, TabBar


class LiveApp(App[None]):
    """Shows what ``advance`` returns, again and again.

    ``advance`` runs in a worker thread, never in two at once, and returns in well under a second. ``every_s`` is the
    pause between two calls at the end of the log; with None only :meth:`refresh_now` calls it.
    """

    CSS_PATH = "live.tcss"
    TITLE = "xlaprof live"
    ENABLE_COMMAND_PALETTE = False
    # Textual types these two as instance variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-compact"), (110, "-wide"), (180, "-vast")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (18, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("p", "pause", "Pause"),
        Binding("tab", "turn(1)", "Next panel", priority=True),
        Binding("shift+tab", "turn(-1)", "Previous panel", show=False, priority=True),
        Binding("t", "theme", "Light/dark"),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]

    def __init__(self, advance: Callable[[], Snapshot], every_s: float | None = 0.5) -> None:
        super().__init__()
        self._advance = advance
        self._every_s = every_s
        self._latest: Snapshot | None = None
        self._panels: dict[str, Region] = {name: panel(id=name) for name, panel in panels.available().items()}
        self._tabs = [name for name, panel in self._panels.items() if panel.PLACE != "top"]
        for key, name in enumerate(self._tabs[:9], start=1):
            self.bind(str(key), f"panel('{name}')", description=name, show=False)
        self.paused = False

    def compose(self) -> ComposeResult:
        yield StatusBar(id="status")
        yield ProgressBar(id="reading", show_eta=False)
        yield from self._in("top")
        yield TabBar(self._tabs, id="tabs")
        yield Static(id="waiting", markup=False)
        with Container(id="body"):
            yield from self._in("left")
            with VerticalScroll(id="side", can_focus=False):
                yield from self._in("right")
        yield Footer(compact=True, show_command_palette=False)

    def _in(self, place: str) -> Iterator[Region]:
        """The panels of one place, marked with its name for the style sheet."""
        for panel in self._panels.values():
            if place == panel.PLACE:
                panel.add_class(f"-{place}")
                yield panel

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.action_panel(self._tabs[0])
        if self._every_s is not None:
            self.run_worker(self._follow(self._every_s), name="follow")

    async def _follow(self, every_s: float) -> None:
        while True:
            caught_up = await self.refresh_now()
            await asyncio.sleep(every_s if caught_up else 0)

    async def refresh_now(self) -> bool:
        """Read on and show the outcome; True: the end of the log has been reached."""
        snapshot = await asyncio.to_thread(self._advance)
        self._latest = snapshot
        self._show(snapshot)
        return snapshot.link != "catching up"

    def _show(self, snapshot: Snapshot) -> None:
        self.query_one(StatusBar).show(snapshot, self.paused)
        reading = self.query_one("#reading", ProgressBar)
        reading.display = snapshot.link == "catching up" and snapshot.total > snapshot.read
        reading.update(total=snapshot.total or None, progress=snapshot.read)
        self.default_screen.set_class(snapshot.report is None, "-unread")  # help may lie above it
        if snapshot.report is None:
            self.query_one("#waiting", Static).update(for_screen(waiting(snapshot)))
        elif not self.paused:
            for panel in self._panels.values():
                panel.show(snapshot.report)

    def action_pause(self) -> None:
        """Hold the screen still, or go on; the log is read either way."""
        self.paused = not self.paused
        if self._latest is not None:
            self._show(self._latest)

    def action_theme(self) -> None:
        """Light or dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_help(self) -> None:
        """Explain the keys."""
        self.push_screen(HelpScreen(self._tabs, map(type, self._panels.values())))

    def action_turn(self, by: int) -> None:
        """Move the focus ``by`` places on, showing the panel it is in."""
        stops = self._stops()
        at = next((i for i, (widget, _) in enumerate(stops) if widget is self.focused), -1)
        self._go(*stops[(at + by) % len(stops)])

    def action_panel(self, panel: str) -> None:
        """Show ``panel`` and give it the focus."""
        self._go(*next(stop for stop in self._stops() if stop[1] == panel))

    def on_tab_chosen(self, event: Tab.Chosen) -> None:
        self.action_panel(event.panel)

    def _stops(self) -> list[tuple[Widget, str]]:
        """Where the focus can go, and the panel each place belongs to."""
        return [(widget, name) for name in self._tabs for widget in self._panels[name].stops()]

    def _go(self, widget: Widget, panel: str) -> None:
        for name in self._tabs:
            self._panels[name].set_class(name == panel, "-shown")
        self.query_one("#body").set_class(self._panels[panel].PLACE == "left", "-left-shown")
        self.query_one(TabBar).mark(panel)
        widget.focus()


def waiting(snapshot: Snapshot) -> str:
    """The message while there is no report to show."""
    if snapshot.link == "unreadable":
        return snapshot.trouble
    if snapshot.link != "absent":
        return f"{snapshot.path} is empty so far."
    if snapshot.ranks:
        why = f"{snapshot.path} does not exist, but {len(snapshot.ranks)} ranks' logs do."
        do, how = "Follow one of them:", f"xlaprof live {snapshot.ranks[0]}"
    else:
        why = f"Waiting for {snapshot.path}."
        do, how = "Start a program that records there:", f"xlaprof run -o {snapshot.path} script.py"
    return f"{why}\n\n{do}\n{how}"
