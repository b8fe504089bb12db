"""What draws for the size it has: told of every change, also of those that no Resize event tells of."""

from __future__ import annotations

from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget


class Fitted(Widget):
    """A widget that draws anew whenever its size has changed; not the first base, since that gives the style.

    Textual sends no Resize event to a widget that is shown again while something else scrolls; it would stay as wide
    as the terminal was when it was seen last. So the layout of the screen is looked at too.
    """

    _fits = Size(0, 0)

    def on_mount(self) -> None:
        self.screen.screen_layout_refresh_signal.subscribe(self, self._laid_out, immediate=True)

    def on_resize(self) -> None:
        self._fits = self.outer_size
        self.resized()

    def _laid_out(self, _: Screen[object]) -> None:
        if self.outer_size != self._fits:
            self._fits = self.outer_size
            self.call_next(self.resized)

    def resized(self) -> None:
        """Draw for the size that it has now."""
        raise NotImplementedError
