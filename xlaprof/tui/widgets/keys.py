"""The footer: the keys that do something here, as many as there is room for, and none of them in part."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer

from xlaprof.tui.widgets.fitted import Fitted


class Keys(Footer, Fitted):
    """In the order of the bindings, those of what has the focus first."""

    def compose(self) -> ComposeResult:
        room = self.size.width + 1  # the last one has no blank behind it
        for key in super().compose():
            shown = (getattr(key, "key_display", ""), getattr(key, "description", ""))
            room -= sum(cell_len(text) + 1 for text in shown)
            if room < 0:
                return
            yield key

    def resized(self) -> None:
        self.call_after_refresh(self.recompose)
