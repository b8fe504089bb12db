"""What the tests of the terminal UI share: a story, an app that follows it, and its screen as text."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from xlaprof.commands._looking import desk
from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed

from .training import BEGAN, Training

SCREENS = Path(__file__).parent / "screens"
PICTURES = SCREENS / "coloured"


def screen(app: LiveApp) -> str:
    """The terminal as it stands, one line per row, without colours."""
    rows = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in row).rstrip() for row in rows) + "\n"


async def news(app: LiveApp, pilot: Pilot[None]) -> str:
    """Let the app read what is new; the screen after that."""
    await app.refresh_now()
    await pilot.pause()
    footer = app.screen_stack[0].query_one(Footer)
    while footer.display and not (footer.children and footer.children[0].region):  # it lists its keys when it is idle
        await pilot.pause()
    return await still(app, pilot)


async def still(app: LiveApp, pilot: Pilot[None]) -> str:
    """The screen once nothing moves: what is drawn may change what scrolls."""
    before = ""
    while (now := screen(app)) != before:
        before = now
        await pilot.pause()
    return now


def tell_of_two_defects(story: Training) -> None:
    """31 steps that read the loss every time and meet another shape at steps 15, 20 and 25."""
    story.train_step(compile_ms=1500)
    story.train(14, read=True)
    for shape in ("i64[5,128]", "i64[3,128]", "i64[7,128]"):
        story.train_step(compile_ms=1200, shape=shape, read=True)
        story.train(4, read=True)
    story.train_step(read=True)


@pytest.fixture(autouse=True)
def _nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are left alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


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
        def gone() -> float:
            return story.now / 1e9 if story else 0.0

        feeds.append(Feed("run.log", **{"clock": lambda: BEGAN + gone(), "monotonic": gone, **reading}))
        return LiveApp(feeds[-1].advance, every_s=None, desk=desk(feeds[-1]))

    yield make
    for feed in feeds:
        feed.close()


@pytest.fixture
def matches() -> Callable[[str, str], None]:
    """Compares a text with the one stored under a name; XLAPROF_STORE_SCREENS=1 stores it instead."""

    def compare(now: str, name: str) -> None:
        stored = SCREENS / f"{name}.txt"
        if os.environ.get("XLAPROF_STORE_SCREENS") == "1":
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(now)
        before = stored.read_text()
        changes = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "stored", "now", lineterm=""))
        assert now == before, f"the screen {name} has changed (XLAPROF_STORE_SCREENS=1 stores it):\n{changes}"

    return compare


@pytest.fixture
def is_coloured_as(tmp_path: Path) -> Callable[[LiveApp, str], None]:
    """Compares a picture of an app's screen, with its colours, with the one stored under a name.

    pytest-textual-snapshot would; its newest release needs a syrupy that refuses the pytest we have.
    """

    def compare(app: LiveApp, name: str) -> None:
        now = re.sub(r"terminal-\d+-", "terminal-", app.export_screenshot())  # a digest of the whole, in each rule
        stored = PICTURES / f"{name}.svg"
        if os.environ.get("XLAPROF_STORE_SCREENS") == "1":
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(now)
        if now != stored.read_text():
            (tmp_path / stored.name).write_text(now)
            pytest.fail(f"{stored} looks otherwise now: {tmp_path / stored.name} (XLAPROF_STORE_SCREENS=1 stores it)")

    return compare


@pytest.fixture
def looks_like(matches: Callable[[str, str], None]) -> Callable[[LiveApp, str], None]:
    """Compares an app's screen with the one stored under a name."""
    return lambda app, name: matches(screen(app), name)
