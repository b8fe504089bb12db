"""The help screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from xlaprof.tui.widgets.panel import Region, line

MOVING = (("↑ ↓", "select a row; scroll other panels"), ("tab  shift+tab", "next, previous panel"))
KEYS = (
    ("enter", "all that is known of the selected finding; of a graph or a function, its code; escape goes back"),
    ("/", "filter the rows of a table; escape takes the filter away"),
    ("s  S", "sort by the next column; the other way round. A click on a heading does so too"),
    ("← →", "in the steps: move the cursor, which the other panels follow; + - zoom, f follows the run"),
    ("g", "go to a step by its number"),
    ("o", "open the selected line in $EDITOR"),
    ("e", "export: the HTML report, JSON, a picture of the screen"),
    ("c", "compare with another recording, as 'xlaprof compare' does"),
    ("p", "hold the screen still; reading goes on"),
    ("t", "light or dark"),
    ("ctrl+p", "all of this by name"),
    ("?", "this help; escape closes it"),
    ("q", "quit; a program that is watched goes on"),
)


class HelpScreen(ModalScreen[None]):
    """Keys, and what the panels mean."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q", "dismiss", "Close")]

    def __init__(self, keys: Mapping[str, str], panels: Iterable[type[Region]]) -> None:
        """``keys``: of the panels that have one. ``panels``: all that there are."""
        super().__init__()
        digits = [(key, panel) for panel, key in keys.items() if key.isdecimal()]
        letters = [(key, panel) for panel, key in keys.items() if key.isalpha()]
        shown = ((f"{digits[0][0]} … {digits[-1][0]}", ", ".join(panel for _, panel in digits)), *letters)
        self._keys = (*MOVING, *shown, *KEYS)
        self._words = [(panel.TITLE.lower(), panel.HELP) for panel in panels if panel.HELP]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = "xlaprof"
            lines = [line((f"{key:<17}", "bold $text-primary"), what) for key, what in self._keys]
            lines.append(line(""))
            lines += [line((f"{word:<17} ", "$text-muted"), what) for word, what in self._words]
            yield Static(Content("\n").join(lines), markup=False)
