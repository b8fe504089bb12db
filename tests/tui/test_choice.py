"""A few things to choose one from: keys count whatever has the focus."""

from __future__ import annotations

import pytest
from textual.app import App

from xlaprof.tui.screens.choice import ChoiceScreen

ANSWERS = [("stay", "stay, and let it run"), ("end", "end it"), ("leave", "close the screen")]


@pytest.mark.parametrize("focused", [True, False])
async def test_a_key_that_comes_before_the_list_has_the_focus_is_not_lost(focused: bool) -> None:
    app, chosen = App[None](), []
    async with app.run_test() as pilot:
        app.push_screen(ChoiceScreen("The program still runs", ANSWERS), chosen.append)
        await pilot.pause()
        if not focused:
            app.screen.set_focus(None)
        await pilot.press("down", "down", "up", "enter")
        await pilot.pause()
        assert chosen == ["end"]
