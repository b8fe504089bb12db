"""Every screen at four sizes, of runs that are empty, small, busy and broken: nothing is out of place unseen.

The screens of one run at one size are one file of tests/tui/screens: a text, which tells what has changed. Colours
are compared at one size for each run, by pictures. XLAPROF_STORE_SCREENS=1 stores all anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import EVERY
from textual.pilot import Pilot
from textual.scrollbar import ScrollBarRender

from xlaprof import events as ev
from xlaprof.tui.app import LiveApp

from .conftest import news, still, tell_of_two_defects
from .training import Training

SMALL, COMMON, LARGE, WIDE = SIZES = ((60, 15), (80, 24), (120, 40), (200, 60))


def empty(story: Training) -> None:
    """Nothing has happened yet."""


def small(story: Training) -> None:
    """Three steps, of which the first compiles."""
    story.train_step(compile_ms=1500)
    story.train(2)


def busy(story: Training) -> None:
    """Two defects, and thirty lines that read; more steps than there are columns; readings of what is alive."""
    tell_of_two_defects(story)
    lines = [story.line(number, f"print(losses[{number}].item())", func=f"log_{number}") for number in range(100, 130)]
    for number in range(120):
        if number % 4 == 0:
            reads = [ev.TransferFromDevice(t=story.now, dur=9_000_000, wait=0, bytes=4, op=8, stack=i) for i in lines]
            story.put(*reads)
        if number % 3 == 0:  # a cache fills, and is emptied
            alive = 200 + 9 * (number % 24)
            story.put(ev.Live(t=story.now, tensors=alive, bytes=alive << 16, held=[[story.embedding, 12, 12 << 16]]))
        story.train_step()


def broken(story: Training) -> None:
    """Hostile names, values that cannot be, lines that are none, events that were dropped; then it fails."""
    tell_of_two_defects(story)
    story.put(*EVERY, ev.Dropped(t=story.now, count=1234, why="disk"))
    with Path("run.log").open("ab") as file:
        file.write(b"!garbage\n{\n\x00\xff\n")
    story.end("OutOfMemoryError")


async def painted(app: LiveApp, pilot: Pilot[None]) -> str:
    """The screen once what threads paint and read, for the size that it turns out to have, is there."""
    before, now = "", await still(app, pilot)
    for _ in range(3):  # a thread that has painted for the size before begins again
        while now != before:
            await app.workers.wait_for_complete()
            await pilot.pause()
            before, now = now, await still(app, pilot)
        await app.workers.wait_for_complete()
        await pilot.pause()
        now = await still(app, pilot)
    return now


#: each run at the sizes at which most may be out of place, and the fullest of them each time; `make test-full` has all
AT_TWO = [(empty, (COMMON, WIDE)), (small, (SMALL, LARGE)), (busy, (COMMON, WIDE)), (broken, (SMALL, LARGE))]
IN_COLOUR = {run.__name__: sizes[0] for run, sizes in AT_TWO}
FULLEST = [pair for pair in AT_TWO if pair[0] in (busy, broken)]
AT_ALL = [pytest.param(run, SIZES, marks=pytest.mark.slow) for run, _ in AT_TWO]


@pytest.mark.parametrize(
    ("run", "sizes"),
    [pair for pair in AT_TWO if pair[0] in (busy, broken)] + AT_ALL,
    ids=lambda value: getattr(value, "__name__", None) or str(len(value)),
)
async def test_every_screen_of_a_run_at_every_size(
    run: Callable[[Training], None],
    sizes: tuple[tuple[int, int], ...],
    story: Training,
    follow: Callable[..., LiveApp],
    matches: Callable[[str, str], None],
    is_coloured_as: Callable[[LiveApp, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # where a scroll bar ends is rounded, in one direction or the other
    monkeypatch.setattr(ScrollBarRender, "VERTICAL_BARS", [" "] * len(ScrollBarRender.VERTICAL_BARS))
    run(story)
    app = follow(story)
    async with app.run_test(size=sizes[0]) as pilot:
        await news(app, pilot)
        for size in sizes:
            await pilot.resize_terminal(*size)
            shown = []
            for panel in (name for name in app._tabs if name not in app._absent):
                app.action_panel(panel)
                shown.append(f"== {panel}\n{await painted(app, pilot)}")
                if size == IN_COLOUR[run.__name__]:
                    is_coloured_as(app, f"{run.__name__}_{panel}")
            matches("".join(shown), f"{run.__name__}_{size[0]}x{size[1]}")
