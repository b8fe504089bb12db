"""The application: asks the feed for snapshots, hands them to the widgets, and answers keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.widget import Widget
from textual.widgets import Footer, Static

from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.themes import DARK, LIGHT
from xlaprof.tui.widgets.bars import IdlePanel, TimePanel
from xlaprof.tui.widgets.findings import FindingsPanel
from xlaprof.tui.widgets.help import HelpScreen
from xlaprof.tui.widgets.panel import Panel
from xlaprof.tui.widgets.status import StatusBar
from xlaprof.tui.widgets.steps import StepsPanel
from xlaprof.tui.widgets.tables import CountersPanel, ScopesPanel
from xlaprof.tui.widgets.tabs import Tab, TabBar

PANELS = ("findings", "time", "idle", "scopes", "counters")
#: Where the focus goes, in turn, and the panel each place belongs to.
STOPS = (("list", "findings"), ("detail", "findings"), *((p, p) for p in PANELS[1:]))


class LiveApp(App[None]):
    """Shows what ``advance`` returns, again and again.

    ``advance`` runs in a worker thread, never in two at once, and returns in well under a second: it reads
    what the log has to offer for a short while. ``every_s`` is the pause between two calls once the end of the
    log has been reached; None makes no call unless :meth:`refresh_now` is awaited.
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
        *(Binding(str(n), f"panel('{p}')", p, show=False) for n, p in enumerate(PANELS, start=1)),
    ]

    def __init__(self, advance: Callable[[], Snapshot], every_s: float | None = 0.5) -> None:
        super().__init__()
        self._advance = advance
        self._every_s = every_s
        self._latest: Snapshot | None = None
        self.paused = False

    def compose(self) -> ComposeResult:
        yield StatusBar(id="status")
        yield StepsPanel(id="steps")
        yield TabBar(PANELS, id="tabs")
        yield Static(id="waiting", markup=False)
        with Container(id="body"):
            yield FindingsPanel(id="findings")
            with VerticalScroll(id="side", can_focus=False):
                yield TimePanel(id="time")
                yield IdlePanel(id="idle")
                yield ScopesPanel(id="scopes")
                yield CountersPanel(id="counters")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.action_panel(PANELS[0])
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
        self.default_screen.set_class(snapshot.report is None, "-unread")  # help may lie above it
        if snapshot.report is None:
            self.query_one("#waiting", Static).update(waiting(snapshot))
        elif not self.paused:
            for id in ("steps", *PANELS[1:]):
                self.query_one(f"#{id}", Panel).show(snapshot.report)
            self.query_one(FindingsPanel).show(snapshot.report)

    def action_pause(self) -> None:
        """Hold the screen still, or go on; reading goes on either way."""
        self.paused = not self.paused
        if self._latest is not None:
            self._show(self._latest)

    def action_theme(self) -> None:
        """Light or dark."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def action_help(self) -> None:
        """Explain the keys."""
        self.push_screen(HelpScreen())

    def action_turn(self, by: int) -> None:
        """Move the focus ``by`` places on, showing the panel it is in."""
        stops = self._stops()
        ids = [widget for widget, _ in stops]
        focused = self.focused.id if self.focused else None
        at = ids.index(focused) if focused in ids else -1
        self._go(*stops[(at + by) % len(stops)])

    def action_panel(self, panel: str) -> None:
        """Show ``panel`` and give it the focus."""
        self._go(*next(stop for stop in self._stops() if stop[1] == panel))

    def on_tab_chosen(self, event: Tab.Chosen) -> None:
        self.action_panel(event.panel)

    def _stops(self) -> list[tuple[str, str]]:
        """Where the focus can go: the list of findings is not there while it is empty."""
        return [stop for stop in STOPS if stop[0] != "list" or self.query_one("#list").display]

    def _go(self, widget: str, panel: str) -> None:
        for name in PANELS:
            self.query_one("#body").set_class(name == panel, f"show-{name}")
        self.query_one(TabBar).mark(panel)
        self.query_one(f"#{widget}", Widget).focus()


def waiting(snapshot: Snapshot) -> str:
    """What to say, and to do, while there is nothing to show."""
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
