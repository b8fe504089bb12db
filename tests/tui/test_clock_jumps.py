"""Clocks that jump by an hour while the screen is open: the program's, and that of the machine it is looked at on."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from xlaprof import events as ev
from xlaprof.tui import process
from xlaprof.tui.app import LiveApp

from .conftest import news, still
from .training import BEGAN, Training

HOUR = 3600.0
#: a length of minutes or hours, as it is written: "1h 00m", "15m 00s"
LONG = re.compile(r"(?<!\w)(?:(\d+)h )?(\d+)m(?: (\d+)s)?(?!\w)")
BELOW_ZERO = re.compile(r"(?<![\w.-])[-−]\d")


def jump(story: Training, by_s: float) -> None:
    """The program's clock goes by so much; what the device does is told by the same."""
    story.now += round(by_s * 1e9)
    story._device_free += round(by_s * 1e9)


def swapped(story: Training, turn: Callable[[], None]) -> None:
    """Write the events of ``turn`` last to first."""
    put, held = story.put, []
    story.put = lambda *events: held.extend(events)  # type: ignore[method-assign]
    turn()
    story.put = put  # type: ignore[method-assign]
    story.put(*reversed(held))


def lengths(shown: str) -> list[float]:
    """Those of a minute or more, in seconds."""
    return [
        int(hours or 0) * HOUR + int(minutes) * 60.0 + int(seconds or 0)
        for hours, minutes, seconds in LONG.findall(shown)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("forth", [HOUR, -HOUR], ids=["forth and back", "back and forth"])
async def test_the_clock_of_the_program_jumps(forth: float, story: Training, follow: Callable[..., LiveApp]) -> None:
    """Its monotonic one: no figure is longer than the jump, a step's are none of it, and the screen goes on."""
    jump(story, HOUR)
    story.train_step(compile_ms=1500)
    story.train(14, read=True)
    app = follow(clock=lambda: BEGAN, monotonic=lambda: 0.0)

    async def sane(step: int) -> None:
        await news(app, pilot)
        for panel in (name for name in app._tabs if name not in app._absent):
            app.action_panel(panel)
            await app.workers.wait_for_complete()
            shown = await still(app, pilot)
            assert f"step {step}" in shown.splitlines()[1], "the screen goes on"
            assert panel == "log" or not BELOW_ZERO.search(shown), panel
            assert max(lengths(shown), default=0.0) <= 2 * HOUR + 60, panel
            steps = "".join(line[:110] for line in shown.splitlines() if line[:7] in (" median", " p95   ", " max   "))
            assert panel != "findings" or (steps and not lengths(steps)), "no step is as long as the jump"

    async with app.run_test(size=(200, 60)) as pilot:
        await sane(14)
        jump(story, forth)
        swapped(story, lambda: story.train(2, read=True))
        story.train_step(read=True)
        await sane(17)
        story.begin_to_compile()  # before the step that ended last, where the clock is back: it cannot last
        assert ("● compiling  " in await news(app, pilot)) == (forth > 0)
        jump(story, -forth)
        story.train_step(compile_ms=400, shape="i64[5,128]", read=True)
        await sane(18)
        for _ in range(4):
            swapped(story, lambda: story.train(4, read=True))
            story.train_step(read=True)
        await sane(38)
        app.action_panel("findings")
        shown = await still(app, pilot)
        assert re.search("● transfer +train.py:33 ", shown), "what happened is still found"
        story.end()
        assert "● finished  39 steps" in await news(app, pilot)


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forth", "back"])
async def test_the_clock_of_the_machine_jumps(by: float, story: Training, follow: Callable[..., LiveApp]) -> None:
    """What lasts is measured with one that does not."""
    unix, gone = [BEGAN], [0.0]
    app = follow(clock=lambda: unix[0] + gone[0], monotonic=lambda: gone[0])
    async with app.run_test(size=(160, 40)) as pilot:
        story.train(3)
        await news(app, pilot)
        story.begin_to_compile()
        await news(app, pilot)
        unix[0] += by
        gone[0] += 3.0
        assert re.search(r"● compiling  3\.[01] s · after step 2", await news(app, pilot))
        story.train_step(compile_ms=3000)
        story.begin_to_compile()
        gone[0] += 1.0
        assert re.search(r"● compiling  [01]\.\d s · after step 3", await news(app, pilot)), "a second old at most"
        story.train_step(compile_ms=3000)
        await news(app, pilot)
        unix[0] -= by
        gone[0] += 9.0
        assert "nothing recorded" not in await news(app, pilot)
        gone[0] += 3.0
        assert "● running  step 4 · nothing recorded for 12 s" in await news(app, pilot)


@pytest.mark.parametrize(("ahead", "lasting"), [(HOUR, "0.0 s"), (-40.0, "40 s")], ids=["ahead", "behind"])
async def test_the_clock_of_the_program_is_another(
    ahead: float, lasting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Callable[..., LiveApp]
) -> None:
    """How long ago a log was written is told by both; what is behind looks old, until more comes."""
    monkeypatch.chdir(tmp_path)
    story = Training(tmp_path / "run.log", began=BEGAN + ahead)
    story.begin_to_compile()
    gone = [0.0]
    app = follow(clock=lambda: BEGAN + gone[0], monotonic=lambda: gone[0])
    async with app.run_test(size=(160, 40)) as pilot:
        assert f"● compiling  {lasting} · " in await news(app, pilot)
        story.put(ev.Text(id=900, text="it goes on"))
        gone[0] += 0.5
        assert re.search(r"● compiling  0\.[05] s · ", await news(app, pilot))
    story.leave()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc here: the start time cannot be read")
@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forth", "back"])
def test_a_process_is_not_lost_because_the_clock_jumps(by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells when it was booted on the clock that jumps."""
    pid, host, began = os.getpid(), platform.node(), time.time()
    assert process.look(pid, host, began) == "alive"

    class Jumped:
        def __init__(self, path: str) -> None:
            self._path = path

        def read_text(self) -> str:
            text = Path(self._path).read_text()
            return re.sub(r"(?<=btime )\d+", lambda found: str(int(found[0]) + round(by)), text)

    monkeypatch.setattr(process, "Path", Jumped)
    assert process.look(pid, host, began) == "alive"
    assert process.look(pid, host, began + 0.5) == ("gone" if by > 0 else "alive"), "seen for the first time"
