"""The app on real logs: what it shows of a run while its log is being written."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import EVERY, MARK
from textual.widgets import ProgressBar

from xlaprof import events as ev
from xlaprof.tui.app import LiveApp
from xlaprof.tui.widgets.table import SortedTable

from .conftest import news, screen, still, tell_of_two_defects
from .training import Training

Looks = Callable[[LiveApp, str], None]
Follow = Callable[..., LiveApp]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (200, 60), (40, 12)], ids=str)
async def test_the_screen_at_many_sizes(
    story: Training, size: tuple[int, int], looks_like: Looks, follow: Follow
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=size) as pilot:
        await news(app, pilot)
        looks_like(app, f"two_defects_{size[0]}x{size[1]}")


@pytest.mark.parametrize(("key", "panel"), [("2", "time"), ("3", "idle"), ("4", "scopes"), ("5", "counters")])
async def test_a_small_terminal_shows_one_panel_at_a_time(
    story: Training, key: str, panel: str, looks_like: Looks, follow: Follow
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press(key)
        await pilot.pause()
        looks_like(app, f"two_defects_{panel}")


async def test_a_recompilation_is_on_the_screen_while_the_program_still_runs(story: Training, follow: Follow) -> None:
    story.train_step(compile_ms=1500)
    story.train(14)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        before = await news(app, pilot)
        assert "recompile" not in before, "a warm-up compile is not a finding"
        assert "Nothing so far." in before
        story.train_step(compile_ms=1200, shape="i64[5,128]")
        story.train(3)
        after = await news(app, pilot)
        assert re.search("● recompile +train.py:24 ", after)
        assert "h = self.embedding(tokens)" in after
        assert "i64[8,128]" in after
        assert "i64[5,128]" in after
        assert "● running" in after


async def test_a_compilation_that_lasts_is_shown_with_its_line_before_it_ends(story: Training, follow: Follow) -> None:
    story.train(3)
    app = follow(story)
    async with app.run_test(size=(160, 40)) as pilot:
        await news(app, pilot)
        story.begin_to_compile()
        story.now += 17_000_000_000
        shown = await news(app, pilot)
        assert "● compiling  17 s · after step 2 · train.py:31  xlaprof.runtime.sync() · graph 1" in shown
        story.train_step(compile_ms=100)
        assert "● running  step 3" in await news(app, pilot)
        mm = ev.Operation("aten::mm")
        story.begin_to_compile(ev.Difference("shape", "f32[37,64]", "f32[12,64]", expected=mm, came=mm))
        shown = await news(app, pilot)
        assert "· graph 2 · input of aten::mm: f32[37,64] → f32[12,64]" in shown


async def test_the_run_ends(story: Training, looks_like: Looks, follow: Follow) -> None:
    story.train_step(compile_ms=1500)
    story.train(14)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        story.end()
        assert "● finished  15 steps" in await news(app, pilot)
        looks_like(app, "clean")


async def test_the_run_fails(story: Training, follow: Follow) -> None:
    story.train(3)
    story.end("OutOfMemoryError")
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "● failed  OutOfMemoryError after 3 steps" in await news(app, pilot)


async def test_the_selection_stays_on_its_finding_when_ranks_change(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)

    def order(shown: str) -> list[str]:
        return [row.split()[1] for row in shown.splitlines() if row.startswith(" ● ")][1:]

    async with app.run_test(size=(80, 40)) as pilot:
        shown = await news(app, pilot)
        assert order(shown) == ["recompile", "transfer"]
        assert "─ Recompile " in shown, "the most expensive is explained"
        await pilot.press("down")
        await pilot.pause()
        assert "─ Transfer " in screen(app)
        story.train(200, read=True)
        shown = await news(app, pilot)
        assert order(shown) == ["transfer", "recompile"], "now the reads cost more"
        assert "─ Transfer " in shown
        await pilot.press("down")
        await pilot.pause()
        assert "─ Recompile " in screen(app)


async def test_a_pause_holds_the_screen_and_loses_nothing(story: Training, follow: Follow) -> None:
    story.train(5)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("p")
        story.train(7)
        held = await news(app, pilot)
        assert "PAUSED" in held
        assert "5 train steps" in held
        await pilot.press("p")
        await pilot.pause()
        assert "12 train steps" in screen(app)
        assert "PAUSED" not in screen(app)


async def test_a_step_is_on_the_screen_before_its_report_and_nothing_else_is_drawn_for_it(
    story: Training, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    draw = SortedTable.show
    monkeypatch.setattr(SortedTable, "show", lambda table, *rows: drawn.append(table.id) or draw(table, *rows))
    story.train(5)
    app = follow(story, rest=1e9, monotonic=time.monotonic)
    async with app.run_test(size=(120, 40)) as pilot:
        assert re.search(r"running +step 4 ", await news(app, pilot))
        assert "list" in drawn
        drawn.clear()
        story.train(7)
        now = await news(app, pilot)
        assert re.search(r"running +step 11 ", now)
        assert "5 train steps" in now, "its report comes later"
        assert not drawn, "of what is not seen, or is as it was"


async def test_waiting_for_a_log_that_does_not_exist_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_like: Looks, follow: Follow
) -> None:
    monkeypatch.chdir(tmp_path)
    app = follow()
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        looks_like(app, "absent")
        (tmp_path / "run.log").touch()
        assert "run.log is empty so far" in await news(app, pilot)
        (tmp_path / "run.log").unlink()  # a recording does not take its place by itself
        story = Training(tmp_path / "run.log")
        story.train(2)
        assert "2 train steps" in await news(app, pilot)
        story.leave()


async def test_the_logs_of_ranks_in_the_place_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Follow
) -> None:
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        (tmp_path / f"run.rank{rank}.log").touch()
    app = follow()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await news(app, pilot)
        assert "run.log does not exist, but 2 ranks' logs do." in shown
        assert "xlaprof live ." in shown


async def test_another_run_in_the_place_of_the_first(story: Training, tmp_path: Path, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "● recompile" in await news(app, pilot)
        story.leave()
        again = Training(tmp_path / "run.log", pid=4343)  # truncates, as the recorder does
        again.train(3)
        shown = await news(app, pilot)
        assert "recompile" not in shown, "nothing of the first run is left"
        assert "3 train steps" in shown
        assert "pid 4343" in shown
        assert "(the log was begun anew)" in shown
        again.leave()


async def test_hidden_panels_show_the_second_run_too(story: Training, tmp_path: Path, follow: Follow) -> None:
    """The log is emptied and rewritten while other panels are on the screen than those that are looked at later."""
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        for key in "2345":
            await pilot.press(key)
            await pilot.pause()
        await pilot.press("1")
        story.leave()
        (tmp_path / "run.log").write_bytes(b"")
        assert "run.log is empty so far" in await news(app, pilot)
        (tmp_path / "run.log").unlink()  # a recording does not take its place by itself
        again = Training(tmp_path / "run.log", pid=4343)
        again.train(3)
        await news(app, pilot)
        seen = {}
        for key in "2345":
            await pilot.press(key)
            await pilot.pause()
            seen[key] = screen(app)
        assert "mean of 2, without the first" in seen["2"]
        assert "compile" not in seen["2"]
        assert "transfer wait" not in seen["3"], "nothing was read in the second run"
        assert re.search(r"forward +3 ", seen["4"])
        assert "TransferFromDeviceTime" not in seen["5"]
        again.leave()


async def test_a_long_log_is_read_under_a_bar(story: Training, follow: Follow) -> None:
    story.train(300)
    app = follow(story, budget_s=0.0, slice_bytes=20_000)
    async with app.run_test(size=(80, 24)) as pilot:
        bar = app.query_one("#reading", ProgressBar)
        shares = []
        while not await app.refresh_now():
            await pilot.pause()
            assert bar.display
            assert bar.region.height == 1
            shares.append(bar.percentage)
        assert len(shares) > 2
        assert shares == sorted(shares)
        await pilot.pause()
        assert not bar.display, "it goes when the end is reached"
        assert "300 train steps" in screen(app)


async def test_the_log_is_removed(story: Training, tmp_path: Path, follow: Follow) -> None:
    story.train(3)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        (tmp_path / "run.log").unlink()
        shown = await news(app, pilot)
        assert "● removed  run.log is gone; showing what was read" in shown
        assert "3 train steps" in shown


async def test_what_is_no_log_takes_its_place_and_goes_again(story: Training, tmp_path: Path, follow: Follow) -> None:
    story.train(3)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        story.leave()
        (tmp_path / "run.log").write_bytes(b"\x00\xff not a log\n" * 9)
        assert "● unreadable  run.log is not an xlaprof log" in await news(app, pilot)
        (tmp_path / "run.log").unlink()  # a recording does not take its place by itself
        story = Training(tmp_path / "run.log")
        story.train(2)
        assert "2 train steps" in await news(app, pilot)
        story.leave()


async def test_what_is_missing_from_the_log_is_said(story: Training, follow: Follow) -> None:
    story.train(2)
    story.put(ev.Dropped(t=story.now, count=1234, why="disk"))
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "(1,234 events not written)" in await news(app, pilot)
    story.put(ev.Text(id=91, text="x"))
    with Path("run.log").open("ab") as file:
        file.write(b"!garbage\n")
    app = follow(story)
    async with app.run_test(size=(120, 24)) as pilot:
        assert "(skipped 1 line that is no event)" in await news(app, pilot)


async def test_a_long_list_of_lines_that_read_alike_keeps_its_scroll_position(story: Training, follow: Follow) -> None:
    story.train_step(compile_ms=1500)
    lines = [story.line(number, f"print(losses[{number}].item())", func=f"log_{number}") for number in range(100, 140)]
    for _ in range(15):
        reads = [ev.TransferFromDevice(t=story.now, dur=9_000_000, wait=0, bytes=4, op=8, stack=i) for i in lines]
        story.put(*reads)
        story.train_step()
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        findings = app.query_one("#list", SortedTable)
        for _ in range(25):
            await pilot.press("down")
        await pilot.wait_for_scheduled_animations()
        await pilot.pause()
        before = findings.scroll_y
        assert before > 0
        story.train_step()
        await news(app, pilot)
        assert findings.scroll_y == before
        assert findings.cursor_row == 25


async def test_names_from_the_log_are_shown_as_they_are(story: Training, follow: Follow) -> None:
    story.put(ev.Text(id=90, text="[bold red]x[/] \x1b[31m\n全角"), ev.Scope(name=90, t=0, dur=10))
    story.train(2)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("4")
        await pilot.pause()
        assert "[bold red]x[/] \ufffd[31m 全角" in screen(app)


async def test_nothing_in_a_log_draws_on_the_screen(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    story.put(*EVERY)
    app = follow(story)
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await news(app, pilot)
        for key in "12345":
            await pilot.press(key)
            await pilot.pause()
            shown += screen(app)
        assert MARK in shown
        assert [one for one in shown if not one.isprintable() and one != "\n"] == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size", [(1, 1), (2, 40), (10, 3), (20, 6), (300, 2), (300, 90)], ids=str)
async def test_no_terminal_is_too_small(story: Training, size: tuple[int, int], follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.resize_terminal(*size)
        await pilot.pause()
        await pilot.press("tab", "tab", "down", "p", "p", "question_mark", "escape")
        await pilot.resize_terminal(80, 24)
        await pilot.press("1")
        await pilot.pause()
        assert re.search("● recompile +train.py:24 ", screen(app))


async def test_what_comes_and_goes_stays_away_from_a_terminal_that_is_too_small(
    story: Training, follow: Follow
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("g", "2", "enter")
        while " step 2: " not in screen(app):  # a thread looks it up
            await pilot.pause()
        await pilot.press("slash")
        assert "filter: text in any column" in await still(app, pilot)
        await pilot.resize_terminal(20, 5)
        assert (await still(app, pilot)).split() == ["xlaprof", "needs", "40x12"]
        await pilot.resize_terminal(80, 24)
        shown = await still(app, pilot)
        assert " step 2: " in shown
        assert "filter: text in any column" in shown


async def test_keys(story: Training, looks_like: Looks, follow: Follow) -> None:
    story.train(2)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        looks_like(app, "help")
        story.train(1)
        await news(app, pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert "3 train steps" in screen(app), "it went on under the help"
        for panel in ("time", "idle", "scopes", "counters", "lanes"):
            await pilot.press("tab")
            assert app.focused is not None
            assert app.focused.id == panel
        await pilot.press("shift+tab")
        assert app.focused is not None
        assert app.focused.id == "counters"
        await pilot.press("1", "shift+tab")
        assert app.focused is not None
        assert app.focused.id == "steps", "the last stop is before the first"
        assert app.current_theme.dark
        await pilot.press("t")
        assert not app.current_theme.dark
        await pilot.press("1")
        await pilot.click("#tab-idle")
        assert app.focused is not None
        assert app.focused.id == "idle"
        await pilot.press("1")
        story.train_step(compile_ms=1500)
        story.train(15, read=True)
        await news(app, pilot)
        assert app.focused is not None
        assert app.focused.id == "list", "findings have come: the arrows select among them"
        await pilot.press("q")
    assert app.return_code == 0


async def test_keys_that_come_before_anything_is_there_open_one_question_and_hide_nothing(
    story: Training, follow: Follow
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        for key in "pgeg":  # typed ahead: all are there before the first screen is
            app.simulate_key(key)
        await app.refresh_now()
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        shown = await still(app, pilot)
        assert len(app.screen_stack) == 1
        assert "PAUSED" in shown
        assert re.search("● recompile +train.py:24 ", shown), "a pause holds what there is, and there was nothing yet"


async def test_who_leaves_while_the_log_is_read_leaves_in_order(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("q")
    assert await app.refresh_now(), "what was read then is shown nowhere"


async def test_what_is_left_is_shown_where_the_program_says_how_many_steps_it_takes(
    story: Training, tmp_path: Path, follow: Follow
) -> None:
    story.train(30)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        assert " left" not in await news(app, pilot), "nobody knows"
        story.leave()
        (tmp_path / "run.log").unlink()
        story = Training(tmp_path / "run.log", total=330)
        story.train(30)
        shown = await news(app, pilot)
        assert "step 29 of 330" in shown
        assert "30 s left" in shown, "300 steps of 100 ms"
        story.end()
        assert " left" not in await news(app, pilot)


async def test_another_recording_is_compared_as_the_verb_compares(
    story: Training, tmp_path: Path, follow: Follow
) -> None:
    before = Training(tmp_path / "before.log")
    before.train_step(compile_ms=1500)
    before.train(30)
    before.end()
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("c", *"before.log", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = screen(app)
        assert "From before.log to this one" in shown
        assert "New: 2 findings" in shown
        assert "train steps: " in shown
        await pilot.press("escape", "c", *"nowhere.log", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "nowhere.log does not exist" in screen(app)
        await pilot.press("escape", "c", "escape")
        await pilot.pause()
        assert "Step time" in screen(app)
