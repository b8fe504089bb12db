"""A table of rows that change while they are looked at: sorted, filtered, and as wide as there is room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from rich.text import Text
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from xlaprof.text.cells import fit
from xlaprof.text.safe import for_screen
from xlaprof.tui.widgets.fitted import Fitted

Row = TypeVar("Row")


class Column(msgspec.Struct, Generic[Row], frozen=True):
    """A column: its heading, its text, and what it is sorted by.

    ``keep``: the lowest is dropped first where there is no room. ``width`` in cells; the one of width 0 has the rest,
    of which it needs ``least``.
    """

    name: str
    width: int
    text: Callable[[Row], str | tuple[str, str]]  # with the name of a colour of the theme
    key: Callable[[Row], Any]
    keep: int
    right: bool = False
    least: int = 0


class SortedTable(DataTable[Text], Fitted, Generic[Row]):
    """Rows by key. The cursor stays on its row when the order changes; until it is moved it stays at the top."""

    class Chosen(Message):
        """The cursor is on another row, or its row has changed."""

        def __init__(self, table: SortedTable[Any], row: Any) -> None:
            super().__init__()
            self.table, self.row = table, row

        @property
        def control(self) -> SortedTable[Any]:
            return self.table

    class Opened(Chosen):
        """The user wants to know more of a row."""

    class Arranged(Message):
        """The user has the rows in another order, or others of them."""

    def __init__(self, columns: Sequence[Column[Row]], *, id: str, order: str = "", given: str = "") -> None:
        """``order``: the column to sort by, "" as the rows are ``given``, which is the name of that order."""
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, cell_padding=0)
        self._columns = list(columns)
        self._rows: list[tuple[str, Row]] = []  # as they were given
        self._seen: list[tuple[str, Row]] = []  # as they are shown
        self._chosen = ""
        self._drawn: object = None
        self._headings: list[Text] = []  # what the table was built of,
        self._cells: list[tuple[str, list[Text]]] = []  # and what stands in it, by the keys of its rows
        self._faint: frozenset[str] = frozenset()
        self._lit: frozenset[str] = frozenset()
        self.given = given
        self.order, self.descending, self.wanted = order, True, ""

    def show(
        self, rows: Sequence[tuple[str, Row]], faint: frozenset[str] = frozenset(), lit: frozenset[str] = frozenset()
    ) -> None:
        """Show ``rows``, each with its key; those that are over are ``faint``, new ones ``lit``."""
        self._rows, self._faint, self._lit = list(rows), faint, lit
        self._fill()

    def dim(self) -> None:
        """No row is new any more."""
        self._lit = frozenset()
        self._fill()

    @property
    def row(self) -> Row | None:
        """The one under the cursor."""
        at = self.cursor_row
        return self._seen[at][1] if 0 <= at < len(self._seen) else None

    @property
    def shown(self) -> int:
        """Rows that the filter leaves."""
        return sum(self._is_wanted(row) for _, row in self._rows)

    def choose(self, key: str) -> None:
        """Put the cursor on the row with this key, if it is there."""
        self._chosen = key
        self._drawn = None
        self._fill()

    def sort_next(self) -> None:
        """Sort by the next column."""
        names = [self.given] * bool(self.given) + [column.name for column in self._fitting() if column.name.strip()]
        at = names.index(self.order) if self.order in names else -1
        self.sort_by(names[(at + 1) % len(names)])

    def sort_by(self, name: str) -> None:
        """Sort by a column, the largest first; by the same again, the smallest first."""
        self.descending = not self.descending if name == self.order else True
        self.order = name
        self._fill()
        self.post_message(self.Arranged())

    def filter(self, wanted: str) -> None:
        """Show the rows that have this text in any column."""
        self.wanted = wanted.casefold()
        self._fill()
        self.post_message(self.Arranged())

    def resized(self) -> None:
        self._fill()

    def _fitting(self) -> list[Column[Row]]:
        columns = list(self._columns)
        width = self._room()
        while len(columns) > 1 and sum(one.width + 1 if one.width else one.least + 1 for one in columns) > width:
            columns.remove(min(columns, key=lambda one: one.keep))
        return columns

    def _room(self) -> int:
        return self.size.width - 2  # the scroll bar's margin

    def _fill(self) -> None:
        if self._room() <= 0:
            return
        by = next((column for column in self._columns if column.name == self.order), None)
        rows = [one for one in self._rows if self._is_wanted(one[1])]
        if by is not None:
            rows.sort(key=lambda one: by.key(one[1]), reverse=self.descending)
        columns = self._fitting()
        state = (rows, [column.name for column in columns], self._room(), self.order, self.descending,
                 self._faint, self._lit, self.app.theme)  # fmt: skip
        if state == self._drawn:
            return
        self._drawn, self._seen = state, rows
        rest = max([1, *(one.least for one in columns if not one.width)])
        rest = max(rest, self._room() - sum(one.width + 1 for one in columns if one.width) - 1)
        top = self.scroll_y
        shape = [(column, column.width or rest) for column in columns]
        headings = [self._heading(column, width) for column, width in shape]
        cells = [(key, [self._cell(column, width, key, row) for column, width in shape]) for key, row in rows]
        keys = [key for key, _ in cells]
        with self.prevent(DataTable.RowHighlighted):
            if headings == self._headings and keys == [key for key, _ in self._cells]:
                self._change(cells)
            else:
                self._build(shape, headings, cells)
            if keys:
                self.cursor_coordinate = Coordinate(keys.index(self._chosen) if self._chosen in keys else 0, 0)
            self.scroll_to(y=top, animate=False)
        self._headings, self._cells = headings, cells
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def _change(self, cells: list[tuple[str, list[Text]]]) -> None:
        """Draw what has changed in the rows that are there: nothing on the screen moves."""
        for at, ((_, before), (_, now)) in enumerate(zip(self._cells, cells, strict=True)):
            for column, cell in enumerate(now):
                if cell != before[column] or cell.style != before[column].style:
                    self.update_cell_at(Coordinate(at, column), cell)

    def _build(
        self, shape: list[tuple[Column[Row], int]], headings: list[Text], cells: list[tuple[str, list[Text]]]
    ) -> None:
        self.clear(columns=True)
        for (column, width), heading in zip(shape, headings, strict=True):
            self.add_column(heading, key=column.name, width=width + 1)
        for key, row in cells:
            self.add_row(*row, key=key)

    def _is_wanted(self, row: Row) -> bool:
        return not self.wanted or any(self.wanted in _words(column.text(row)).casefold() for column in self._columns)

    def _heading(self, column: Column[Row], width: int) -> Text:
        mark = ("▼" if self.descending else "▲") if column.name == self.order else ""
        return Text(fit(column.name + mark, width, right=column.right) + " ", end="")

    def _cell(self, column: Column[Row], width: int, key: str, row: Row) -> Text:
        text = column.text(row)
        words, colour = text if isinstance(text, tuple) else (text, "")
        style = self.colour("text-muted") if key in self._faint else self.colour(colour)
        return Text(
            fit(for_screen(words), width, right=column.right) + " ",
            f"reverse {style}".strip() if key in self._lit else style,
            end="",
        )

    def colour(self, name: str) -> str:
        """A colour of the theme as rich writes it; "" for none, and where it has none."""
        value = self.app.theme_variables.get(name, "") if name else ""
        return value if value.startswith("#") else ""

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        event.stop()
        if self.row is not None:
            self._chosen = self._seen[self.cursor_row][0]
            self.post_message(self.Chosen(self, self.row))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        if self.row is not None:
            self.post_message(self.Opened(self, self.row))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        self.sort_by(str(event.column_key.value))


def _words(text: str | tuple[str, str]) -> str:
    return text if isinstance(text, str) else text[0]
