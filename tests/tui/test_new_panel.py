"""CONTRIBUTING.md on a new screen, followed to the letter, in a folder apart: its tab, key and help are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from contributing import add_module, blocks, examples

from xlaprof.tui import panels
from xlaprof.tui.app import LiveApp

from .conftest import screen
from .training import Training

PANEL, TEST = blocks("Adding a screen")


@pytest.fixture(autouse=True)
def _added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(panels, "compiling", PANEL, tmp_path / "panels", monkeypatch)


def test_its_test_passes() -> None:
    (test,) = examples(TEST)
    test()


@pytest.mark.parametrize("width", [80, 120, 200])
async def test_it_is_on_the_screen(story: Training, follow: Callable[..., LiveApp], width: int) -> None:
    story.train_step(compile_ms=1500)
    story.train(2)
    app = follow(story)
    async with app.run_test(size=(width, 50)) as pilot:
        await app.refresh_now()
        await pilot.press("6")
        await pilot.pause()
        shown = screen(app)
        assert ("6 Compiling" in shown) == (width == 80), "tabs are there where one panel is shown at a time"
        assert "─ Compilation " in shown
        assert "1 program in 1.50 s" in shown
        assert app.focused is not None
        assert app.focused.id == "compiling"
        await pilot.press("question_mark")
        await pilot.pause()
        shown = screen(app)
        assert "1 … 0" in shown
        assert "scopes, counters, compiling" in shown
        assert "the programs that were compiled" in shown
