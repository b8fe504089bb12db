"""Each figure on the screen is one of ``xlaprof report --json`` on the same log, written as the report writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from story import Story, save

from tests.analysis.compiling import Compiling, shape
from xlaprof import cli
from xlaprof import events as ev
from xlaprof.text.quantities import duration, percent, size_text
from xlaprof.tui.app import LiveApp

from .conftest import news, still
from .test_screens import busy, small
from .training import Training

_UNITS = "(?:ns|us|ms|s|min|h|bytes|KiB|MiB|GiB)"
#: a number with its unit, or a share
FIGURE = re.compile(rf"(?<![\w.,])(?:[\d,]*[\d.]+ {_UNITS}(?!\w)|<?\d+%)")
#: a number by itself, such as a count
COUNT = re.compile(rf"(?<![\w.,:×→[-])\d{{1,3}}(?:,\d{{3}})*(?![\w:%\]]|[.,]\d)(?! {_UNITS}\b)")
#: what is on no report: where on the axis of time things are, events as they were recorded
APART = {"timeline", "log"}
#: counts that are no report's: after which step something was read
STEPS_NAMED = {"memory"}


def trained(run: Callable[[Training], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        story = Training(path)
        run(story)
        story.end()

    return write


def compiled(path: Path) -> None:
    """Of torch.compile."""
    compiling = Compiling()
    compiling.broke("0/0", 21, "the branch depends on the value of a tensor", hint="Use torch.where().", gb="GB0170")
    compiling.compile("0/0", 400, phases={"Dynamo": 40_000_000, "Inductor": 310_000_000})
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", 90, resumed=place)
    compiling.recompile("1/1", shape(4, 5), ms=60, resumed=place)
    compiling.story.finish()
    save(compiling.story.events, path)


def jitted(path: Path) -> None:
    """Of JAX."""
    story = Story()
    line, name = story.line(9, "state = train_step(state, batch)"), story.text("train_step")
    story.put(
        ev.JitCompile(t=story.now, dur=10_000_000, func=name, stack=line, code=story.line(3, "def train_step(state):")),
        ev.JitProgram(story.now, name, line, arguments=50 << 20, results=45 << 20, temporary=5 << 20),
    )
    story.spend(25)
    story.finish()
    save(story.events, path)


RUNS = [trained(small), trained(busy), compiled, jitted]


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a report."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def means(told: dict[str, Any]) -> Iterator[float]:
    """What a step has on average, without the first: the report divides by their number where it prints."""
    for steps in told["steps"]["by_name"]:
        yield from (seconds / max(1, steps["count"] - 1) for seconds in numbers(steps["split"]))


def shares(told: dict[str, Any]) -> Iterator[float]:
    """Parts of a whole."""
    for steps in told["steps"]["by_name"]:
        yield from (seconds / steps["split"]["total_s"] for seconds in numbers(steps["split"]))
    idle = told["idle"]
    yield from (idle["idle_ratio"], 1 - idle["idle_ratio"])
    yield from (cause["seconds"] / idle["idle_s"] for cause in idle["causes"])
    for program in told["compilation"]["programs"]:
        yield from (program[key] / program["compile_s"] for key in ("lower_s", "backend_s"))
    for function in told["torch_compile"]["functions"]:
        spent = [seconds for _, seconds in function["phases"]]
        yield from (seconds / sum(spent) for seconds in spent)


@pytest.mark.parametrize("write", RUNS, ids=["small", "busy", "torch.compile", "JAX"])
async def test_each_figure_on_each_screen_is_the_reports(
    write: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    follow: Callable[..., LiveApp],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "run.log")
    app = follow()
    shown = {}
    async with app.run_test(size=(200, 60)) as pilot:
        await news(app, pilot)
        for panel in (one for one in app._tabs if one not in app._absent):
            app.action_panel(panel)
            await app.workers.wait_for_complete()
            lines = (await still(app, pilot)).splitlines()
            tabs = next(number for number, text in enumerate(lines) if "1 Findings" in text)
            shown[panel] = "\n".join([*lines[1:tabs], *lines[tabs + 1 : -1]])  # neither the pid nor keys
        assert app._latest is not None
        waiting = [one.wait_s / one.total_s for one in app._latest.details.transfers]  # by line: on no report
    assert cli.main(["report", "run.log", "--json"]) == 0
    text = capsys.readouterr().out
    told = json.loads(text)
    values = [*numbers(told), *means(told)]
    known = {duration(one) for one in values} | {size_text(int(one)) for one in values} | set(FIGURE.findall(text))
    known |= {percent(one) for one in (*shares(told), *waiting)}
    counted = {f"{one:,}" for one in values if one == int(one)} | set(COUNT.findall(text))
    seen = 0
    for panel in shown.keys() - APART:
        figures, counts = set(FIGURE.findall(shown[panel])), set(COUNT.findall(shown[panel]))
        assert figures <= known, panel
        assert counts <= counted or panel in STEPS_NAMED, panel
        seen += len(figures) + len(counts)
    assert seen > 30, "else nothing was looked at"
