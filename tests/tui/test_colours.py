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


@pytest.mark.parametrize("dark", [True, False], ids=["dark", "light"])
def test_parts_of_a_step_differ(dark: bool) -> None:
    """Each from each other, and from the ground they are painted on."""
    shades = {nearest(colour(name, dark)) for name, _ in PARTS}
    ground = nearest(themes("standard")[not dark].background or "")
    assert len(shades) == len(PARTS)
    assert ground not in shades
