"""Steps over the whole run: what a column stands for, the cursor that other panels follow, marks, and the timeline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlaprof import cli
from xlaprof import events as ev
from xlaprof.analysis.views.painting import View
from xlaprof.text.parts import PARTS
from xlaprof.tui.app import LiveApp
from xlaprof.tui.feed import Feed
from xlaprof.tui.panels.steps import StepsPanel, seen
from xlaprof.tui.panels.timeline import LanesPanel
from xlaprof.tui.widgets.stack import column
from xlaprof.tui.widgets.table import SortedTable

from .conftest import news, screen, tell_of_two_defects
from .training import Training

Follow = Callable[..., LiveApp]


async def test_the_bars_are_the_steps_of_the_report(
    story: Training, follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_of_two_defects(story)
    story.end()
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        assert app._latest is not None
        course = app._latest.course
    assert cli.main(["report", "run.log", "--json"]) == 0
    (steps,) = json.loads(capsys.readouterr().out)["steps"]["by_name"]
    assert [bar.first for bar in course.bars] == list(range(1, 31))
    assert course.first is not None
    assert course.first.total_s == pytest.approx(steps["first_s"])
    split = steps["split"]
    assert sum(bar.total_s for bar in course.bars) == pytest.approx(split["total_s"])
    assert sum(bar.busy_s for bar in course.bars) == pytest.approx(split["device_busy_s"])
    for number, (_, field) in enumerate(PARTS):
        assert sum(bar.parts[number] for bar in course.bars) == pytest.approx(split[field]), field
    assert course.bars[14].named()[0] == ("compile", pytest.approx(1.2)), "step 15 meets another shape"


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(0, 12), st.integers(-1, 4999))
def test_whatever_is_seen_are_bars_in_columns_that_fit(bars: int, width: int, zoom: int, end: int) -> None:
    shown = seen(bars, width, zoom, end)
    assert 0 <= shown.first < bars
    assert 1 <= shown.count <= shown.width <= width
    assert shown.first + (shown.count - 1) * shown.each < bars, "the last column has a bar"
    assert sum(shown.cells(n) for n in range(shown.count)) == shown.width
    if zoom == 0:
        assert shown.count * shown.each >= bars, "the whole run"
    if end < 0:
        assert shown.first + shown.count * shown.each >= bars, "the newest is seen"


parts = st.lists(st.tuples(st.floats(0.001, 10), st.sampled_from("abcd")), min_size=1, max_size=6)


@given(parts, st.floats(0.01, 100), st.integers(1, 12))
def test_a_column_is_as_high_as_its_value(values: list[tuple[float, str]], full: float, height: int) -> None:
    cells = column(values, full, height)
    assert len(cells) == height
    eighths = sum(8 if upper else " ▁▂▃▄▅▆▇█".index(char) for char, _, upper in cells)
    wanted = min(8 * height, max(1, round(sum(value for value, _ in values) / full * 8 * height)))
    assert abs(eighths - wanted) <= 1
    empty = [char == " " for char, _, _ in cells]
    assert empty == sorted(empty, reverse=True), "nothing is above what is empty"


async def test_a_cursor_that_the_other_panels_follow(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("g", "1", "5", "enter")
        await pilot.pause()
        shown = screen(app)
        assert re.search(r"at step 15: 1.39 s: compile 1.20 s, .*tracing", shown)
        assert re.search("Where a step's time goes  at step 15: 1.3", shown)
        await pilot.press("left")
        await pilot.pause()
        assert "at step 14: 194 ms" in screen(app)
        await pilot.press("f")
        await pilot.pause()
        assert "at step" not in screen(app)
        await pilot.press("g", "9", "9", "enter")
        await pilot.pause()
        assert [note.message for note in app._notifications] == ["The run has no step 99 yet."]


async def test_idle_time_scopes_and_reads_of_the_step_under_the_cursor(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    story.put(ev.Scope(name=story.text("epoch"), t=0, dur=story.now))
    app = follow(story)
    async with app.run_test(size=(200, 60)) as pilot:
        shown = await news(app, pilot)
        assert "Device idle  69% of 9.42 s" in shown
        assert re.search(r"epoch +11.0 s +0 s ", shown), "no step has the epoch, which has steps"
        assert re.search(r"forward +155 ms +5.0 ms +145 ms ", shown)
        await pilot.press("g", "1", "5", "enter")
        await app.workers.wait_for_complete()
        shown = await news(app, pilot)
        # the step lasts 1.39 s, of which the device works for 95 ms: else it waits for the compilation and the tracing
        assert "Device idle  at step 15: 93% of 1.39 s" in shown
        assert re.search(r"compile +\S+ +1.20 s .*compile +\S+ +1.19 s", shown), "of the host, and of the idle time"
        assert "Scopes  at step 15" in shown
        assert re.search(r"forward +5.0 ms +5.0 ms", shown)
        assert "Counters  of the whole run" in shown
        await pilot.press("0")
        shown = await news(app, pilot)
        assert "Transfers  at step 15: 1 read in 94 ms" in shown
        assert re.search(r"train.py:33 .*print\(loss.item\(\)\) .* 1 +94 ms", shown)
        await pilot.press("g", "1", "6", "enter", "f")
        assert "Transfers  30 reads in " in await news(app, pilot)
        await pilot.press("1")
        shown = await news(app, pilot)
        assert "Device idle  69% of 9.42 s" in shown
        assert "of the whole run" not in shown


async def test_findings_are_marked_where_they_happened(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await app.workers.wait_for_complete()
        await pilot.pause()
        marked = next(row for row in screen(app).splitlines() if "◆" in row)
        assert marked.count("◆") == 3, "three steps compiled again"
        await pilot.press("down")
        await pilot.pause()
        marked = next(row for row in screen(app).splitlines() if "◆" in row)
        assert marked.count("◆") == 30, "the selected finding happened in every step but the first"


async def test_the_timeline_has_a_row_for_each_thing_and_idle_time_its_blame(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("6")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = screen(app)
        for title in ("MainThread: steps", "MainThread: scopes", "MainThread: host", "device", "device idle"):
            assert re.search(rf"^ {title} ", shown, re.MULTILINE), title
        await pilot.press("g", "1", "5", "enter")  # the timeline goes to the step
        await app.workers.wait_for_complete()
        await pilot.pause()
        lanes = app.query_one(LanesPanel)
        assert lanes.view.end_s - lanes.view.start_s == pytest.approx(2 * 1.39, abs=0.05)
        app.action_panel("timeline")
        await pilot.press(*["down"] * 9)
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = screen(app)
        assert "device idle, step 1" in shown
        assert re.search(r"compile .* 1.20 s", shown), "what is to blame, and for how long"


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Feed]:
    """A feed that has read a log."""
    path = tmp_path_factory.mktemp("painted") / "run.log"
    story = Training(path)
    tell_of_two_defects(story)
    story.leave()
    with closing(Feed(str(path))) as feed:
        feed.advance()
        yield feed


@given(st.floats(0, 12), st.floats(0.0001, 12), st.integers(1, 200))
def test_any_view_can_be_painted(read: Feed, start: float, length: float, width: int) -> None:
    painting = read.paint(View(width, start, start + length, row=1, cell=width // 2))
    assert painting is not None
    assert {len(lane.cells) for lane in painting.lanes} == {width}
    assert all(0 <= filled <= 8 for lane in painting.lanes for _, filled in lane.cells)


@given(st.floats(0, 12), st.integers(2, 200), st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 199)), max_size=5))
def test_a_cursor_that_moves_leaves_the_rows_and_tells_of_what_is_under_it(
    read: Feed, start: float, width: int, moves: list[tuple[int, int]]
) -> None:
    """Whether the rows were painted for this stretch before, or another one was seen meanwhile."""
    for row, cell in moves:
        view = View(width, start, start + 3.0, row, min(cell, width - 1))
        read.paint(View(width, start, start + 3.0))
        followed = read.paint(view)
        read.paint(View(width + 1))
        assert read.paint(view) == followed


async def test_zooming_in_shows_less_and_out_all(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("6")
        await app.workers.wait_for_complete()
        lanes = app.query_one(LanesPanel)
        lengths = []
        for key in ("plus", "plus", "minus", "minus"):
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause()
            seen_now = lanes._painting.view
            lengths.append(seen_now.end_s - seen_now.start_s)
        assert lengths == pytest.approx([lengths[3] / 2, lengths[3] / 4, lengths[3] / 2, lengths[3]], rel=0.01)


async def test_findings_graphs_and_source_follow_the_step_cursor(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(140, 45)) as pilot:
        await news(app, pilot)

        async def go(step: str) -> str:
            await pilot.press("g", *step, "enter")
            for _ in range(3):
                await app.workers.wait_for_complete()
                await pilot.pause()
            return screen(app)

        shown = await go("20")
        why = "graph 3 was compiled: shape of input 0 of aten::embedding: i64[5,128] -> i64[3,128], at train.py:24"
        assert "step 20: 1.39 s, compile 1.20 s, " in shown
        assert why.replace(" ", "") in re.sub(r"\s", "", shown)
        assert "2 of 2, the largest gain first, at step 20" in shown
        app.action_panel("graphs")
        await pilot.pause()
        shown = screen(app)
        assert "1 of them at step 20" in shown
        assert app.query_one("#graphs-table", SortedTable).row.program == 3
        app.action_panel("source")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = screen(app)
        assert "at step 20: the host's time" in shown
        assert re.search(r"train.py:31 +1.20 s +compile", shown)
        assert re.search(r"train.py:33 +9\d ms", shown)

        shown = await go("3")
        assert re.search(r"step 3: \d+ ms, transfer wait 9\d ms, because of train.py:33: print\(loss.item\(\)\)", shown)
        app.action_panel("findings")
        await pilot.pause()
        assert "1 of 2, the largest gain first, at step 3" in screen(app)
        assert "─ Transfer " in screen(app), "the recompilation is not of this step"

        app.query_one(StepsPanel).focus()
        await pilot.press("f")
        await pilot.pause()
        shown = screen(app)
        assert "at step 3" not in shown
        assert "2, the largest gain first" in shown


def test_what_lines_cost_in_a_step_is_no_more_than_the_step_took(read: Feed) -> None:
    for bar in read._history.course.bars:
        told = read.moment(bar)
        assert told is not None
        assert sum(cost.seconds for cost in told.lines) <= bar.total_s + 1e-6
        parts = dict(bar.named())
        compiled = sum(seconds for cost in told.lines for part, seconds, _ in cost.items if part == "compile")
        assert compiled == pytest.approx(parts.get("compile", 0.0), abs=1e-3)
        read_s = sum(seconds for cost in told.lines for part, seconds, _ in cost.items if part == "transfer wait")
        assert read_s == pytest.approx(parts.get("transfer wait", 0.0), abs=1e-3)


async def test_steps_that_are_called_step_are_not_called_step_steps(story: Training, follow: Follow) -> None:
    story.name = story.text("step")
    story.train(3)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Step time  3 steps" in await news(app, pilot)
