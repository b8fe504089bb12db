"""A long text, of which only the lines on the screen are drawn: with a cursor, and lines and words that are marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from xlaprof.text.strings import printable

_WIDEST = 2_000  # characters of a line
_TAB = 4


class TextLines(ScrollView, can_focus=True):
    """Lines of text. ``partner`` scrolls and moves with it, where it is set."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000000)", "First line", show=False),
        Binding("end", "move(1000000000)", "Last line", show=False),
    ]

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, texts: TextLines, line: int) -> None:
            super().__init__()
            self.texts, self.line = texts, line

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.partner: TextLines | None = None
        self.cursor = 0
        self._lines: Sequence[str] = ()
        self._marked: Collection[int] = ()
        self._wanted = ""

    def take(self, lines: Sequence[str], marked: Collection[int] = (), cursor: int = 0) -> None:
        """Show ``lines``, of which those ``marked`` stand out."""
        self._lines, self._marked = lines, marked
        widest = max((len(line) for line in lines), default=0)
        self.virtual_size = Size(min(_WIDEST, widest + 1), len(lines))
        self.scroll_to(x=0, animate=False)
        self.put(cursor)
        self.refresh()

    def search(self, wanted: str) -> None:
        """Mark this text wherever it is, whatever its case."""
        self._wanted = wanted.casefold()
        self.refresh()

    def matches(self) -> list[int]:
        """The lines that have what is searched for."""
        return [n for n, line in enumerate(self._lines) if self._wanted in line.casefold()] if self._wanted else []

    def put(self, line: int) -> None:
        """Have the cursor on a line, in sight."""
        self.cursor = max(0, min(line, len(self._lines) - 1))
        self.scroll_to_region(Region(int(self.scroll_x), self.cursor, 1, 1), animate=False)
        self.refresh()
        if self.partner is not None and self.partner.cursor != self.cursor:
            self.partner.put(self.cursor)
        self.post_message(self.Moved(self, self.cursor))

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.put(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by what is on the screen."""
        self.put(self.cursor + by * max(1, self.scrollable_content_region.height - 1))

    def on_click(self, event: Click) -> None:
        at = event.get_content_offset(self)
        if at is not None:
            self.put(int(self.scroll_y) + at.y)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if self.partner is not None and self.partner.scroll_y != new:
            self.partner.scroll_to(y=new, animate=False)

    def render_line(self, y: int) -> Strip:
        """A line of the screen."""
        width, line = self.scrollable_content_region.width, int(self.scroll_y) + y
        base = self.rich_style
        if not 0 <= line < len(self._lines):
            return Strip.blank(width, base)
        text = printable(self._lines[line][:_WIDEST].expandtabs(_TAB))
        lit = line == self.cursor
        if line in self._marked:
            base += self._warning()
        if lit:
            base += Style(reverse=True) if self.has_focus else Style(underline=True)
        found, word = base + Style(bold=True, underline=True, reverse=not lit), self._wanted
        segments, at, low = list[Segment](), 0, text.casefold()
        while word and len(low) == len(text) and (here := low.find(word, at)) >= 0:
            segments += [Segment(text[at:here], base), Segment(text[here : here + len(word)], found)]
            at = here + len(word)
        segments.append(Segment(text[at:], base))
        x = int(self.scroll_x)
        return Strip(segments).crop_extend(x, x + width, base)

    def _warning(self) -> Style:
        colour = self.app.theme_variables.get("text-warning", "")
        return Style(bold=True, color=colour if colour.startswith("#") else None)
