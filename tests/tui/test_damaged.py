"""Damaged logs on the whole screen: each page of it is shown, small or large, and nothing falls over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutations.mutate import mutated
from xlaprof.tui.app import LiveApp

from .conftest import news, screen


@pytest.mark.parametrize("seed", range(3))
async def test_each_page_of_the_screen_shows_a_damaged_log(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Callable[..., LiveApp]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.log").write_bytes(mutated(seed))
    app = follow()
    async with app.run_test(size=(60, 15) if seed % 2 else (140, 45)) as pilot:
        seen = {await news(app, pilot)}
        for name in app._tabs:
            await app.run_action(f"panel('{name}')")
            await pilot.press("down")
            await pilot.pause()
            seen.add(screen(app))
        assert app.is_running
    words = " ".join(seen)
    assert len(seen) > 1 or "waiting" in words or "unreadable" in words
