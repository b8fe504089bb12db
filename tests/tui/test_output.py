"""What a program writes to its terminal, as lines that can be shown; and how the screen ends a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof.commands._looking import desk
from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed
from xlaprof.tui.program import LINES, Output, Program

from .conftest import news, screen
from .training import BEGAN, Training


def written(*chunks: bytes) -> Output:
    reading, writing = os.pipe()
    os.close(writing)
    output = Output(reading)
    for chunk in chunks:
        output.feed(chunk)
    os.close(reading)
    return output


def test_colours_titles_and_cursor_moves_are_left_out() -> None:
    output = written(b"\x1b[31mred\x1b[0m\r\n\x1b]0;a title\x07plain\n\x1b[2J\x1b[Hhome\n")
    assert list(output.lines) == ["red", "plain", "home"]


def test_a_progress_bar_is_one_line_that_changes() -> None:
    output = written(b"\r 10%|#   |", b"\r 50%|##  |\r", b" 90%|### |")
    assert (list(output.lines), output.last) == ([], " 90%|### |")
    output.feed(b"\r100%|####|\n")
    assert (list(output.lines), output.last) == (["100%|####|"], "")


@given(st.text(st.sampled_from("ab全 \t\x1b[]31m0;?\x07\\\r\n\b\u202e\x00"), max_size=60), st.data())
def test_wherever_it_is_cut_it_reads_the_same_and_nothing_moves_the_cursor(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    cut, at_once = written(*parts), written(whole)
    assert (list(cut.lines), cut.last) == (list(at_once.lines), at_once.last)
    assert all(line.isprintable() for line in [*cut.lines, cut.last])


def test_endless_output_is_bounded() -> None:
    output = written(*(b"line\n" * 1_000 for _ in range(15)), b"x" * 1_000_000)
    assert (len(output.lines), output.count) == (LINES, 15_000)
    assert len(output.last) <= 2_000


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends by Ctrl-C at the second time only."""
    code = "\nwhile True:\n  try: input()\n  except KeyboardInterrupt: print('not yet', flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", f"print('epoch 1'){code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


async def test_the_screen_shows_what_it_writes_and_asks_before_it_ends_it(
    story: Training, program: subprocess.Popen[bytes]
) -> None:
    story.train(3)
    assert program.stdout is not None
    output = Output(program.stdout.fileno())
    feed = Feed("run.log", clock=lambda: BEGAN + story.now / 1e9)
    app = LiveApp(feed.advance, every_s=None, desk=desk(feed, Program(program.pid, output)))

    async def until(text: str) -> None:
        for _ in range(3_000):
            if text in await news(app, pilot):
                return
        raise AssertionError(screen(app))

    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("u")
        await until("epoch 1")
        await pilot.press("q")
        await pilot.pause()
        assert "The program still runs" in screen(app)
        await pilot.press("escape", "q", "down", "enter")
        await until("not yet")
        assert program.poll() is None
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert "kill it: it has not ended" in screen(app)
        await pilot.press("down", "enter")
        assert program.wait(60) == -signal.SIGKILL
        story.end("KeyboardInterrupt")
        await until("failed")
        await pilot.press("q")
    assert app.return_code == 0
    feed.close()
