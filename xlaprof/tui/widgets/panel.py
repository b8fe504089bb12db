"""What every panel is made of: a titled, scrollable area that redraws only when what it shows has changed."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Literal, TypeVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from xlaprof.analysis.model import Report
from xlaprof.analysis.views.course import Bar
from xlaprof.analysis.views.moment import Moment
from xlaprof.text.safe import for_screen
from xlaprof.tui.snapshot import Snapshot
from xlaprof.tui.widgets.fitted import Fitted
from xlaprof.tui.widgets.table import SortedTable

Line = Content
Data = TypeVar("Data")


class _Unset:
    """No data has come yet."""


_UNSET = _Unset()


class Region(Widget):
    """A widget that shows a part of the report, in a place of the screen."""

    TITLE: ClassVar[str] = ""  # in the rule above it
    HELP: ClassVar[str] = ""  # beside its title on the help screen
    #: Its place among the tabs, and so its key.
    ORDER: ClassVar[int] = 100
    #: The letter that shows it; "": the next digit, as long as there are some.
    KEY: ClassVar[str] = ""
    #: Above the tabs, in the left column, in the right one, or in the place of both. What is above the tabs has no tab.
    PLACE: ClassVar[Literal["top", "left", "right", "page"]] = "right"
    #: It shows more than the report does, and so more often.
    LIVE: ClassVar[bool] = False

    def has(self, snapshot: Snapshot) -> bool:
        """Whether there is anything to show. Without, the panel has no tab; ``snapshot`` has a report."""
        return True

    def show(self, snapshot: Snapshot) -> None:
        """Show the part of the run that this is about; ``snapshot`` has a report."""
        raise NotImplementedError

    def follow(self, bar: Bar | None) -> None:
        """The step cursor is on ``bar``; None: on none."""

    def explain(self, moment: Moment | None) -> None:
        """What is known of the step under the cursor has come; None: the whole run is shown."""

    def table(self) -> SortedTable[Any] | None:
        """What ``s`` sorts and ``/`` filters."""
        return None

    def stops(self) -> list[Widget]:
        """Where the focus stops in it, in turn."""
        return [self]


class Panel(VerticalScroll, Fitted, Region, Generic[Data]):
    """A part of the report as lines of text. Subclasses say which (:meth:`pick`) and how it reads (:meth:`lines`)."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, can_focus=True)
        self.border_title = heading(self.TITLE)
        self._data: Data | _Unset = _UNSET  # what is to be seen,
        self._drawn: Data | _Unset = _UNSET  # and what is, at which width
        self._width = self._height = 0
        self._report: Report | None = None
        self._body = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._body

    def show(self, snapshot: Snapshot) -> None:
        """Take the panel's part of the report; draw it if it differs from what is on the screen."""
        self._report = snapshot.report
        self.pick_again()

    def pick_again(self) -> None:
        """Draw the panel's part of the report, which depends on the step cursor."""
        if self._report is not None:
            self.draw(self.pick(self._report))

    def draw(self, data: Data) -> None:
        """Show ``data``; a panel that is hidden does so when it is seen again."""
        self._data = data
        self._redraw()

    def resized(self) -> None:
        self._redraw()

    def _redraw(self) -> None:
        """Draw the data, unless it is on the screen at this width already."""
        data, width = self._data, self.scrollable_content_region.width
        if isinstance(data, _Unset) or width <= 0 or (width == self._width and data == self._drawn):
            return
        lines = self.lines(data, width)
        same = (width, len(lines)) == (self._width, self._height)  # nothing else on the screen has to move
        self._drawn, self._width, self._height = data, width, len(lines)
        self._body.update(Content("\n").join(lines), layout=not same)
        self.border_title = heading(self.title(data), self.note(data))

    def pick(self, report: Report) -> Data:
        """What of the report this panel depends on."""
        raise NotImplementedError

    def lines(self, data: Data, width: int) -> list[Line]:
        """The panel's text, no line wider than ``width`` cells."""
        raise NotImplementedError

    def title(self, data: Data) -> str:
        """The panel's name in the rule above it."""
        return self.TITLE

    def note(self, data: Data) -> str:
        """A total, shown beside the name."""
        return ""


def line(*parts: str | Line | tuple[str, str]) -> Line:
    """One line of text from strings, lines and (string, style) pairs; nothing in them is read as markup."""
    return Content.assemble(*map(_safe, parts))


def _safe(part: str | Line | tuple[str, str]) -> str | Line | tuple[str, str]:
    if isinstance(part, tuple):
        return for_screen(part[0]), part[1]
    return for_screen(part) if isinstance(part, str) else part


def heading(title: str, note: str = "") -> Line:
    """The name of a panel and, less loud, a total."""
    return line(f" {title}", (f"  {note}" if note else "", "$text-muted not bold"), " ")


def quiet(message: str) -> Line:
    """An empty state: said, but not loudly."""
    return line((message, "$text-muted"))
