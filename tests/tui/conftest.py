"""What the tests of the terminal UI share: a story, an app that follows it, and its screen as text."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed

from .training import BEGAN, Training

SCREENS = Path(__file__).parent / "screens"


def screen(app: LiveApp) -> str:
    """The terminal as it stands, one line per row, without colours."""
    rows = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in row).rstrip() for row in rows) + "\n"


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    """A run that has just begun, recorded into run.log of the current directory."""
    monkeypatch.chdir(tmp_path)
    training = Training(tmp_path / "run.log")
    yield training
    training.leave()


@pytest.fixture
def follow() -> Iterator[Callable[..., LiveApp]]:
    """Makes apps on run.log that read when asked to, at the time of the story they are given."""
    feeds = []

    def make(story: Training | None = None, **reading: object) -> LiveApp:
        feeds.append(Feed("run.log", clock=lambda: BEGAN + (story.now / 1e9 if story else 0.0), **reading))
        return LiveApp(feeds[-1].advance, every_s=None)

    yield make
    for feed in feeds:
        feed.close()


@pytest.fixture
def looks_like() -> Callable[[LiveApp, str], None]:
    """Compares an app's screen with the one stored under a name; XLAPROF_STORE_SCREENS=1 stores it instead."""

    def compare(app: LiveApp, name: str) -> None:
        stored, now = SCREENS / f"{name}.txt", screen(app)
        if os.environ.get("XLAPROF_STORE_SCREENS") == "1":
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(now)
        before = stored.read_text()
        changes = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "stored", "now", lineterm=""))
        assert now == before, f"the screen {name} has changed (XLAPROF_STORE_SCREENS=1 stores it):\n{changes}"

    return compare
