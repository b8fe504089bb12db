"""Stacked columns in character cells: a column for a step, to an eighth of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from textual.content import Content

from xlaprof.text.cells import COLUMNS

#: A cell: its character, the colour of its lower part, that of its upper one ("": the background).
Cell = tuple[str, str, str]
_EMPTY: Cell = (" ", "", "")


def column(parts: Sequence[tuple[float, str]], full: float, height: int) -> list[Cell]:
    """The cells of one column, from the top. ``parts``: values with their colours, from the bottom; ``full``: the value
    of the whole height, at which the column is cut off."""
    edges: list[tuple[int, str]] = []
    reached = 0.0
    for value, shade in parts:
        reached += value
        edge = min(height * 8, round(reached / full * 8 * height)) if full > 0 else 0
        if edge > (edges[-1][0] if edges else 0):
            edges.append((edge, shade))
    if not edges and parts:
        edges.append((1, parts[-1][1]))  # something is never nothing
    cells = []
    for row in range(height - 1, -1, -1):
        low, high = row * 8, row * 8 + 8
        inside = [(min(edge, high) - max(before, low), edge, shade) for before, edge, shade in _steps(edges)]
        inside = [one for one in inside if one[0] > 0]
        filled = sum(eighths for eighths, _, _ in inside)
        if not inside:
            cells.append(_EMPTY)
            continue
        # a cell has two colours: of more, the two that take most of it
        kept = sorted(sorted(inside, key=lambda one: -one[0])[:2], key=lambda one: one[1])
        if len(kept) == 1 or filled < 8:
            shade = max(kept)[2]
            cells.append((COLUMNS[filled], shade, ""))
        else:
            lower = max(1, min(7, round(8 * kept[0][0] / (kept[0][0] + kept[1][0]))))
            cells.append((COLUMNS[lower], kept[0][2], kept[1][2]))
    return cells


def _steps(edges: Sequence[tuple[int, str]]) -> list[tuple[int, int, str]]:
    return [(edges[n - 1][0] if n else 0, edge, shade) for n, (edge, shade) in enumerate(edges)]


def rows(columns: Sequence[Sequence[Cell]], height: int, lit: Sequence[bool] = (), ground: str = "") -> list[Content]:
    """Columns beside each other as lines of text; those ``lit`` stand on the colour ``ground``."""
    lines = []
    for row in range(height):
        cells = [one[row] for one in columns]
        styled = [(cell, bool(lit) and lit[n]) for n, cell in enumerate(cells)]
        parts: list[str | tuple[str, str]] = []
        for (upper, lower, on), group in groupby(styled, key=lambda one: (one[0][2], one[0][1], one[1])):
            text = "".join(cell[0] for cell, _ in group)
            behind = upper or (ground if on else "")
            style = f"{lower} on {behind}".strip() if behind else lower
            parts.append((text, style) if style.strip() else text)
        lines.append(Content.assemble(*parts))
    return lines
