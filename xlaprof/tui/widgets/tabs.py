"""One line with the names of the panels that are not on the screen anyway."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from textual.app import ComposeResult
from textual.containers import HorizontalScroll
from textual.message import Message
from textual.widgets import Static


class Tab(Static):
    """A name to click on."""

    class Chosen(Message):
        """The user wants to see ``panel``."""

        def __init__(self, panel: str) -> None:
            super().__init__()
            self.panel = panel

    def __init__(self, key: str, panel: str) -> None:
        super().__init__(f"{key} {panel.capitalize()}".lstrip(), id=f"tab-{panel}", markup=False)
        self.panel = panel

    def on_click(self) -> None:
        self.post_message(self.Chosen(self.panel))


class TabBar(HorizontalScroll):
    """The names of all panels; the shown one is marked. On wide terminals those of the right column need none."""

    def __init__(self, keys: Mapping[str, str], places: Mapping[str, str], *, id: str) -> None:
        """``keys``: the key of each panel, "" for none. ``places``: the place of each."""
        super().__init__(id=id, can_focus=False)
        self._keys, self._places = keys, places

    def compose(self) -> ComposeResult:
        for panel, key in self._keys.items():
            tab = Tab(key, panel)
            tab.add_class(f"-of-{self._places[panel]}")
            yield tab

    def leave_out(self, absent: Collection[str]) -> None:
        """Show no tab of panels that have nothing to show."""
        for tab in self.query(Tab):
            tab.set_class(tab.panel in absent, "-absent")

    def mark(self, panel: str) -> None:
        """Mark the shown panel."""
        beside = self._places[panel] == "right"
        for tab in self.query(Tab):
            tab.set_class(tab.panel == panel, "-active")
            tab.set_class(beside and self._places[tab.panel] == "left", "-active-beside")
            if tab.panel == panel:
                tab.scroll_visible(animate=False)
