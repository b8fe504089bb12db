"""What the pages of the report share: how one is printed, headings, tables and places."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from xlaprof.analysis.model import Place
from xlaprof.report.output import write
from xlaprof.text.cells import shorten
from xlaprof.text.strings import printable

WIDEST = 100  # columns: beyond, lines are hard to read

SEVERITY_STYLE = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan"}


def show_page(render: Callable[[int], RenderableType], console: Console | None = None) -> None:
    """Print what ``render`` makes for a width in columns on standard output, without blanks at the ends of lines."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as page:
        console.print(render(console.width))
    write("\n".join(line.rstrip(" ") for line in page.get().split("\n")), console.file)


def title(text: str, width: int, note: str = "") -> Text:
    """A heading with a rule behind it."""
    line = Text()
    line.append("\n")
    line.append(text, "bold")
    if note:
        line.append(f"  {note}", "dim")
    line.append(" ")
    line.append("─" * max(0, width - len(text) - len(note) - (3 if note else 1)), "dim")
    return line


def paragraph(label: str, text: str, width: int, style: str = "bold", indent: str = "   ") -> Text:
    """``label`` in ``style`` and ``text``, wrapped at ``width`` columns and indented."""
    lines = Text(fill(label + printable(text), width, initial_indent=indent, subsequent_indent=indent))
    lines.stylize(style, len(indent), len(indent) + len(label.rstrip()))
    return lines


def where(place: Place, width: int) -> Text:
    """File, line and function in ``width`` columns."""
    line = Text("   ")
    if place.line:
        func = f" in {shorten(place.func, 24)}" if place.func and place.func != "<module>" else ""
        room = max(16, width - 3 - len(func) - len(f":{place.line}"))
        line.append(f"{shorten(place.file, room, keep_end=True)}:{place.line}", "cyan")
        line.append(func, "dim")
    else:
        line.append("no line is known", "dim")
    line.truncate(width, overflow="ellipsis")
    return line


def new_table() -> Table:
    """An empty table of columns without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
