"""The help screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from xlaprof.tui.widgets.panel import line

KEYS = (
    ("↑ ↓", "select a finding; scroll other panels"),
    ("tab  shift+tab", "next, previous panel"),
    ("1 … 5", "findings, time, idle, scopes, counters"),
    ("p", "hold the screen still; reading goes on"),
    ("t", "light or dark"),
    ("?", "this help; escape closes it"),
    ("q", "quit; the program that is watched goes on"),
)

WORDS = (
    ("findings", "ranked by the time a fix would give back"),
    ("step time", "a column is a step; ▲ marks those off the scale"),
    ("where time goes", "the host's time; the device works beside it"),
    ("device idle", "the device had nothing to do, and why"),
    ("scopes", "self: without the scopes inside; idle: the device's"),
)


class HelpScreen(ModalScreen[None]):
    """Keys, and what the panels mean."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = "xlaprof live"
            lines = [line((f"{key:<17}", "bold $text-primary"), what) for key, what in KEYS]
            lines.append(line(""))
            lines += [line((f"{word:<17}", "$text-muted"), what) for word, what in WORDS]
            yield Static(Content("\n").join(lines), markup=False)
