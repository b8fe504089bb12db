"""One line with the names of the panels, on terminals that show one panel at a time."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Static


class Tab(Static):
    """A name to click on."""

    class Chosen(Message):
        """The user wants to see ``panel``."""

        def __init__(self, panel: str) -> None:
            super().__init__()
            self.panel = panel

    def __init__(self, number: int, panel: str) -> None:
        super().__init__(f"{number} {panel.capitalize()}", id=f"tab-{panel}", markup=False)
        self.panel = panel

    def on_click(self) -> None:
        self.post_message(self.Chosen(self.panel))


class TabBar(Horizontal):
    """The names of all panels; the shown one is marked."""

    def __init__(self, panels: list[str], *, id: str) -> None:
        super().__init__(id=id)
        self._panels = panels

    def compose(self) -> ComposeResult:
        for number, panel in enumerate(self._panels, start=1):
            yield Tab(number, panel)

    def mark(self, panel: str) -> None:
        """Mark the shown panel."""
        for tab in self.query(Tab):
            tab.set_class(tab.panel == panel, "-active")
