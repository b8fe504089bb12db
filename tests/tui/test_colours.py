"""On a terminal of 16 colours what has a meaning still has a colour of its own."""

from __future__ import annotations

import pytest
from rich.color import Color, ColorSystem

from xlaprof.text.parts import PARTS
from xlaprof.tui.themes import DARK, LIGHT, themes
from xlaprof.tui.widgets.colours import colour


def nearest(shade: str) -> int | None:
    """Which of 16 colours a terminal shows for it."""
    return Color.parse(shade).downgrade(ColorSystem.STANDARD).number


@pytest.mark.parametrize("which", [0, 1], ids=["dark", "light"])
def test_meanings_differ(which: int) -> None:
    shades = themes("standard")[which].to_color_system().generate()
    names = ("background", "foreground", "text-muted", "text-primary", "text-success", "text-warning", "text-error")
    assert len({nearest(shades[name]) for name in names}) == len(names)
    assert themes("truecolor") == themes("256") == (DARK, LIGHT)


def test_parts_of_a_step_differ() -> None:
    assert len({nearest(colour(name, dark=True)) for name, _ in PARTS}) == len(PARTS)
    light = {name: nearest(colour(name, dark=False)) for name, _ in PARTS}
    assert len({light[name] for name in ("tracing", "compile", "dispatch", "transfer wait", "data wait")}) == 5
