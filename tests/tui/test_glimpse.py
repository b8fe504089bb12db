"""The step that is on the screen while a report is made."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from xlaprof import log
from xlaprof.commands._looking import desk
from xlaprof.events import Step
from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed
from xlaprof.tui.glimpse import Unread, last_step
from xlaprof.tui.snapshot import Snapshot

from .conftest import news, screen
from .training import Training


def test_the_last_step_is_that_of_the_whole_lines_of_a_log(story: Training) -> None:
    path = Path("run.log")
    assert last_step(str(path)) is None, "there is none yet"
    story.train(3)
    assert last_step(str(path)) == max(one.num for one in log.read(path) if isinstance(one, Step)) == 2
    whole = path.read_bytes()
    torn = whole.rindex(b'{"k":"step"') + 40
    path.write_bytes(whole[:torn])
    assert last_step(str(path)) == 1, "the last one is being written"
    path.write_bytes(whole[:torn] + b"\n")
    assert last_step(str(path)) == 1, "or was damaged"
    path.write_bytes(whole + b'{"k":"text","id":900,"s":"' + b"x" * 100_000 + b'"}\n')
    assert last_step(str(path)) is None, "it is too far from the end"
    path.unlink()
    assert last_step(str(path)) is None


def test_many_events_may_wait_unless_something_was_compiled(story: Training) -> None:
    with closing(Feed("run.log")) as feed:
        story.train(100)
        assert not feed.waits(), "nothing was read yet"
        feed.advance()
        assert not feed.waits(), "nothing has come"
        story.train(2)
        assert not feed.waits(), "a few take no time"
        story.train(100)
        assert feed.waits()
        story.train_step(compile_ms=900, shape="i64[5,128]")
        assert not feed.waits(), "that makes a finding"
        feed.advance()
        story.train(100)
        assert feed.waits()
        story.end()
        assert not feed.waits(), "that is its end"


def test_what_is_to_be_known_at_once_is_found_however_it_was_written(story: Training) -> None:
    """The log is looked at after each write, each byte once; a line may be written in two."""
    story.train(200)
    path = Path("run.log")
    begun = path.stat().st_size
    story.train(100)
    until = path.stat().st_size
    story.train_step(compile_ms=900, shape="i64[5,128]")
    whole = path.read_bytes()
    kind = whole.index(b'"k":"compile"', until)
    unread = Unread("run.log")
    for cut in range(kind, kind + 13):
        path.write_bytes(whole[:cut])
        assert unread.may_wait(begun), cut
    path.write_bytes(whole)
    assert not unread.may_wait(begun)
    assert not unread.may_wait(begun), "until it was read"


async def test_a_step_is_on_the_screen_although_a_report_takes_long(story: Training) -> None:
    """A report that takes as long as the test likes."""
    free = threading.Event()
    free.set()
    story.train(5)
    feed = Feed("run.log")

    def advance() -> Snapshot:
        now = feed.advance()
        assert free.wait(60)
        return now

    app = LiveApp(advance, every_s=None, desk=desk(feed))
    async with app.run_test(size=(120, 40)) as pilot:
        assert re.search("running +step 4 ", await news(app, pilot))
        free.clear()
        app.run_worker(app.refresh_now())
        story.train(6)
        await _until(lambda: "step 10 " in screen(app), pilot.pause)
        assert "5 train steps" in screen(app), "all else waits for the report"
        free.set()
        assert "11 train steps" in await news(app, pilot)
    feed.close()


async def _until(holds: Callable[[], bool], wait: Callable[[float], Awaitable[None]]) -> None:
    for _ in range(400):
        if holds():
            return
        await wait(0.05)
    raise AssertionError("it never was")
