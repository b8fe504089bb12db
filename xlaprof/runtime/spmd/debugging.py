"""Shardings drawn as tables: which device holds which part."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from xlaprof.runtime.tape import tapes

from .mode import global_runtime_device_count
from .tensors.layout import get_sharding_spec

_TILED = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)( last_tile_dim_replicate)?\}")


def _table(sharding: str) -> list[list[int | list[int]]]:
    """The device, or devices, of each row and column."""
    if not sharding:
        raise ValueError("sharding has no value")
    if sharding == "{replicated}":
        return [[list(range(global_runtime_device_count()))]]
    found = _TILED.fullmatch(sharding)
    if found is None:
        raise ValueError(f"sharding is not organized as expected: {sharding}")
    grid, devices = ([int(n) for n in found[i].split(",")] for i in (1, 2))
    replicas = grid.pop() if found[3] else 1
    if len(grid) > 2:
        raise ValueError(f"sharding has {len(grid)} dimensions, a table shows two: {sharding}")
    rows, columns = grid if len(grid) == 2 else (1, grid[0])
    cells: list[Any] = (
        [devices[i : i + replicas] for i in range(0, len(devices), replicas)] if found[3] else list(devices)
    )
    return [cells[row * columns : (row + 1) * columns] for row in range(rows)]


def visualize_sharding(
    sharding: str, use_color: bool = True, scale: float = 1.0, min_width: int = 9, max_width: int = 80
) -> Any:
    """Print the table of a sharding's text, ``{devices=[2,2]0,1,2,3}``, and return it (a ``rich.table.Table``).

    ``scale`` scales the cells; ``min_width`` and ``max_width`` are in characters. Raises ``ValueError`` for a text that
    is no sharding, or has more dimensions than a table.
    """
    from rich import align, box, console, padding, style, table

    cells = _table(sharding)
    screen = console.Console(width=max_width)
    use_color = use_color and screen.color_system is not None
    kind = os.environ.get("PJRT_DEVICE") or tapes.devices()[0].platform.upper()
    side = int(3 * scale)
    drawn = table.Table(
        show_header=False, show_lines=not use_color, padding=0, highlight=not use_color, pad_edge=False,
        box=None if use_color else box.SQUARE,
    )  # fmt: skip
    width = min(max(int(len(cells[0]) * side * 1.5), min_width), max_width)
    above, rest = divmod(len(cells) * side - 2, 2)
    for row in cells:
        entries = []
        for devices in row:
            entry = f"{kind} {devices}"
            left, odd = divmod(width - len(entry) - 2, 2)
            around = tuple(max(n, 0) for n in (above, left + odd, above + rest, left))
            placed = align.Align(entry, "center", vertical="middle")
            entries.append(padding.Padding(placed, around, style=style.Style(bgcolor=None, color=None)))  # type: ignore[arg-type]
        drawn.add_row(*entries)
    screen.print(drawn, end="\n\n")
    return drawn


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> Any:
    """:func:`visualize_sharding` of ``t``'s sharding."""
    return visualize_sharding(get_sharding_spec(t), **kwargs)
