"""What lies above the panels, and the two panels that only some runs have, at four sizes: stored as the others are.

A question waits in a worker for its answer, so what is read in threads is waited for only where none is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranked import RankStory
from textual.pilot import Pilot
from textual.scrollbar import ScrollBarRender

from xlaprof import events as ev
from xlaprof.commands._looking import desk
from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed
from xlaprof.tui.fleet import FleetFeed
from xlaprof.tui.program import Output, Program
from xlaprof.tui.screens.choice import ChoiceScreen
from xlaprof.tui.screens.question import QuestionScreen

from .conftest import news, still, tell_of_two_defects
from .test_code import IR
from .test_screens import COMMON, SIZES, painted
from .training import BEGAN, Training

#: `make test-full` has all
EACH = [
    pytest.param(size, marks=pytest.mark.slow if size != COMMON else [], id=f"{size[0]}x{size[1]}") for size in SIZES
]
#: name -> the keys that lead to it, and those that lead back
ABOVE = {
    "explain": (["1", "enter"], ["escape"]),
    "code": (["7", "enter", "f"], ["escape"]),
    "two programs' code": (["7", "enter", "f", "d", "enter"], ["escape", "escape"]),
    "compare": (["c", *"before.log", "enter"], ["escape"]),
    "help": (["question_mark"], ["escape"]),
    "output": (["u"], ["1"]),
}
QUESTIONS = {
    "which to compare with": (["c"], ["escape"]),
    "which step": (["g", *"15"], ["escape"]),
    "which export": (["e"], ["escape"]),
    "what of the program": (["ctrl+c"], ["escape"]),
}


@pytest.fixture(autouse=True)
def _scroll_bars_of_whole_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    for bars in ("VERTICAL_BARS", "HORIZONTAL_BARS"):
        monkeypatch.setattr(ScrollBarRender, bars, [" "] * len(getattr(ScrollBarRender, bars)))


@pytest.fixture
def run(story: Training, tmp_path: Path) -> Training:
    """Two defects, the code of two of its graphs, and a recording from before."""
    tell_of_two_defects(story)
    (tmp_path / "run.code").mkdir()
    for program, rows in (("1", 8), ("2", 5)):
        kept = f"{program}.ir.txt"
        (tmp_path / "run.code" / kept).write_text(IR.format(rows=rows, file="/home/ada/examples/train.py"))
        name = story.text(f"graph_{program}")
        story.put(ev.Code(t=story.now, source="xla", key=program, form="ir", file=kept, func=name, stack=story.sync))
    before = Training(tmp_path / "before.log")
    before.train_step(compile_ms=1500)
    before.train(30)
    before.end()
    return story


@pytest.fixture
def app(run: Training) -> Iterator[LiveApp]:
    """It shows a program that has written three lines and begun a fourth."""
    written, writes = os.pipe()
    os.write(writes, b"epoch 1\nepoch 2  loss 2.31\n\x1b[31mwarning\x1b[0m: no mask\nepoch 3   40%")
    os.close(writes)

    def gone() -> float:
        return run.now / 1e9

    feed = Feed("run.log", clock=lambda: BEGAN + gone(), monotonic=gone)
    yield LiveApp(feed.advance, every_s=None, desk=desk(feed, Program(os.getpid(), Output(written))))
    feed.close()
    os.close(written)


async def seen(app: LiveApp, pilot: Pilot[None]) -> str:
    """The screen once all of it is there. The worker that has asked a question is at work until it is answered."""
    await pilot.pause()
    if isinstance(app.screen, QuestionScreen | ChoiceScreen):
        return await still(app, pilot)
    return await painted(app, pilot)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_what_lies_above_the_panels(
    size: tuple[int, int], app: LiveApp, matches: Callable[[str, str], None]
) -> None:
    shown = []
    async with app.run_test(size=size) as pilot:
        await news(app, pilot)
        for name, (there, back) in ABOVE.items():
            for key in there:
                await pilot.press(key)
                await pilot.pause()
                now = await seen(app, pilot)
            shown.append(f"== {name}\n{now}")
            await pilot.press(*back)
            await pilot.pause()
            assert len(app.screen_stack) == 1, name
        for name, (there, back) in QUESTIONS.items():
            await pilot.press(*there)
            shown.append(f"== {name}\n{await seen(app, pilot)}")
            assert len(app.screen_stack) == 2, name
            await pilot.press(*back)
            await pilot.pause()
            assert len(app.screen_stack) == 1, name
    matches("".join(shown), f"above_{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", EACH)
async def test_ranks(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matches: Callable[[str, str], None]
) -> None:
    """One is slow, one compiled what the others did not, one has not come."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    for rank, data in ((0, 1), (1, 25), (2, 1)):
        story = RankStory(rank, world=4, path=tmp_path / "logs" / f"run.rank{rank}.log").train(15, data=data)
        story.train(1, data=data, shape="i64[5,128]" if rank == 1 else "").train(14, data=data).finish_and_close()
    feed = FleetFeed("logs", clock=lambda: BEGAN + 2.0, monotonic=lambda: 0.0)
    feed.open()
    app = LiveApp(feed.advance, every_s=None, desk=desk(feed))
    async with app.run_test(size=size) as pilot:
        await news(app, pilot)
        shown = await painted(app, pilot)
    feed.close()
    matches(shown, f"ranks_{size[0]}x{size[1]}")
