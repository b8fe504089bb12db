"""What the pages of the report share: how one is printed, headings, tables and places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import fill

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import called, way
from xlaprof.text.cells import shorten
from xlaprof.text.output import write
from xlaprof.text.quantities import duration, times
from xlaprof.text.safe import for_screen
from xlaprof.text.strings import path_line, printable, with_article

WIDEST = 100  # columns: beyond, lines are hard to read
NARROWEST = 20  # below, the terminal may wrap: it says 0 or 1 where nobody told it how wide it is

SEVERITY_STYLE = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan"}


def show_page(render: Callable[[int], RenderableType], console: Console | None = None) -> None:
    """Print what ``render`` makes for a width in columns on standard output, without blanks at the ends of lines."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    console.width = max(NARROWEST, min(console.width, WIDEST))
    with console.capture() as page:
        console.print(_Safe(render(console.width)))
    write("\n".join(line.rstrip(" ") for line in page.get().split("\n")), console.file, styled=True)


class _Safe:
    """A page whose text is safe, whatever it was made of, before it gets its colours."""

    def __init__(self, page: RenderableType) -> None:
        self._page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._page, options):
            yield Segment(for_screen(segment.text), segment.style)


def title(text: str, width: int, note: str = "") -> Text:
    """A heading with a rule behind it."""
    note = f"  {note}" if note else ""
    return Text.assemble("\n", (text, "bold"), (note, "dim"), " ", ("─" * max(0, width - len(text + note) - 1), "dim"))


def paragraph(label: str, text: str, width: int, style: str = "bold", indent: str = "   ") -> Text:
    """``label`` in ``style`` and ``text``, wrapped at ``width`` columns and indented."""
    lines = Text(fill(label + printable(text), width, initial_indent=indent, subsequent_indent=indent))
    lines.stylize(style, len(indent), len(indent) + len(label.rstrip()))
    return lines


def where(place: Place, width: int) -> Text:
    """File, line and function in ``width`` columns."""
    func = f" in {shorten(place.func, 24)}" if place.line and place.func and place.func != "<module>" else ""
    room = max(16, width - 3 - len(func))
    file = (shorten(path_line(place.file, place.line), room, keep_end=True), "cyan" if place.line else "dim")
    line = Text.assemble("   ", file, (func, "dim"))
    line.truncate(width, overflow="ellipsis")
    return line


def under(place: Place, width: int) -> Iterator[Text]:
    """The library's line under the user's, if there is one, in ``width`` columns."""
    if place.library:
        yield Text.assemble(("   in ", "dim"), shorten(called(place.acting), width - 6))
        if names := way(place):
            yield Text(f"   by way of {shorten(names, width - 13)}", "dim")


def parts_of(finding: Finding, width: int) -> Iterator[Text]:
    """What else of the same cause is in a finding's cost."""
    for part in finding.parts:
        text = f"{times(part.count)}, {duration(part.cost_s)} of the cost: {part.cause}"
        yield paragraph(f"With it {with_article(part.kind)}, ", text, width, "")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    width: int,
    drop: Sequence[str] = (),
    text: str = "",
    curve: str = "",
) -> Table:
    """``rows`` under ``headings`` in ``width`` columns, no figure cut or wrapped.

    Where that is too narrow, the columns of ``drop`` go, the first named first; then the column ``text``, which holds
    words, is wrapped. The column ``curve`` is drawn.
    """
    drawn = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = {
        heading: max([cell_len(heading), *(row[column].cell_len for row in drawn)])
        for column, heading in enumerate(headings)
    }
    for heading in drop:
        if sum(widths.values()) + _BETWEEN * (len(widths) - 1) > width:
            del widths[heading]
    page = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="dim")
    others = sum(length for heading, length in widths.items() if heading != text) + _BETWEEN * (len(widths) - 1)
    for heading in widths:
        words = heading == text
        room = max(_NARROWEST, width - others) if words else None
        page.add_column(
            heading, justify="left" if words or heading == curve else "right", no_wrap=not words, max_width=room
        )
    for row in drawn:
        page.add_row(*(cell for heading, cell in zip(headings, row, strict=True) if heading in widths))
    return page


_BETWEEN = 2  # columns
_NARROWEST = 8  # a column of words
