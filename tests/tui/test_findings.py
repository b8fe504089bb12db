"""The table of findings, and what can be done with the selected one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from xlaprof import cli
from xlaprof.tui.app import LiveApp
from xlaprof.tui.panels import findings
from xlaprof.tui.widgets.table import SortedTable

from .conftest import news, screen, tell_of_two_defects
from .training import Training

Follow = Callable[..., LiveApp]


def ranked(shown: str) -> list[str]:
    """The kinds of the findings in the table, from the top."""
    return [row.split()[1] for row in shown.splitlines() if row.startswith(" ● ")][1:]


async def test_the_table_is_sorted_by_any_column_and_filtered(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(200, 40)) as pilot:
        shown = await news(app, pilot)
        assert ranked(shown) == ["recompile", "transfer"], "as the report ranks them"
        table = app.query_one("#list", SortedTable)
        orders = {}
        for _ in range(10):
            await pilot.press("s")
            await pilot.pause()
            orders[table.order] = ranked(screen(app))
        assert orders["count"] == ["transfer", "recompile"]
        assert orders["gain"] == ["recompile", "transfer"]
        assert {"sure", "last", "id"} < orders.keys(), "200 columns have room for all"
        table.sort_by("count")
        await pilot.press("S")
        await pilot.pause()
        assert ranked(screen(app)) == list(reversed(orders["count"])) or table.descending
        await pilot.press("slash", *"loss")
        await pilot.pause()
        assert ranked(screen(app)) == ["transfer"], "print(loss.item()) has it in its code"
        assert "1 of them shown" in await news(app, pilot)
        await pilot.press("enter", "escape")
        await pilot.pause()
        assert len(ranked(screen(app))) == 2


def test_columns_are_left_out_as_the_page_says() -> None:
    columns = sorted(findings._columns(), key=lambda column: column.keep)
    page = " ".join((Path(__file__).parents[2] / "docs" / "live.md").read_text().split())
    first, *others = [column.name for column in columns if column.name.strip()]
    assert f"a smaller terminal leaves out {first} first, then {', '.join(others)}." in page


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
async def test_the_last_line_names_keys_in_whole_and_the_way_out_first(
    width: int, story: Training, follow: Follow
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(200, 20)) as pilot:
        await news(app, pilot)
        whole = screen(app).splitlines()[-1]
        assert whole.startswith("enter Explain tab Next ? Help q Quit / Filter ")
        assert " c Compare " in whole
        await pilot.resize_terminal(width, 20)
        await pilot.pause()
        row = (await news(app, pilot)).splitlines()[-1]
        assert f"{whole} ".startswith(f"{row} ")
        assert len(row) > min(width, len(whole)) - 12, "no room is left for a further one"


async def test_a_finding_is_explained_as_the_verb_explains_it(
    story: Training, follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 60)) as pilot:
        await news(app, pilot)
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = " ".join(screen(app).split())
        await pilot.press("escape")
        await pilot.pause()
        assert ranked(screen(app)) == ["recompile", "transfer"]
    assert cli.main(["explain", "run.log", "1"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    for told in ("Cause: The shape (dimension 0) of tokens changed", "Confidence: high", "3 times in 11.0 s"):
        assert told in page
        assert told in shown


async def test_new_findings_are_lit_and_those_that_stopped_are_faint(
    story: Training, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "FLASH_S", 3600)  # the test says when
    story.train_step(compile_ms=1500)
    story.train(14, read=True)
    app = follow(story)
    async with app.run_test(size=(160, 40)) as pilot:
        await news(app, pilot)
        table = app.query_one("#list", SortedTable)
        assert (len(table._lit), len(table._faint)) == (0, 0), "what was there at the begin is not new"
        assert [row.last for _, row in table._rows] == [-1], "and when it happened last is not known"
        story.train_step(compile_ms=1200, shape="i64[5,128]", read=True)
        story.train(2, read=True)
        await news(app, pilot)
        assert [row.finding.kind for key, row in table._rows if key in table._lit] == ["recompile"]
        story.train(200)
        shown = await news(app, pilot)
        table.dim()
        assert (len(table._lit), len(table._faint)) == (0, 2), "nothing is read any more, and nothing compiled"
        assert re.search(r"● transfer .* 17 ", shown), "the step of the last read"


async def test_figures_of_the_same_findings_change_where_they_stand(story: Training, follow: Follow) -> None:
    """Nothing is built anew, so nothing else on the screen is laid out again; and the cursor stays."""
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(160, 40)) as pilot:
        before = await news(app, pilot)
        table = app.query_one("#list", SortedTable)
        await pilot.press("down")
        await pilot.pause()
        columns, chosen = list(table.ordered_columns), table.row.finding.kind
        story.train(7, read=True)
        now = await news(app, pilot)
        assert all(is_one is was for is_one, was in zip(table.ordered_columns, columns, strict=True))
        assert (ranked(now), table.row.finding.kind, table.cursor_row) == (ranked(before), chosen, 1)
        assert table.row.finding.count > 7
        assert re.search(rf"● transfer .* {table.row.finding.count} ", now)


async def test_what_was_not_observed_is_not_called_clean(story: Training, follow: Follow) -> None:
    story.end()
    app = follow(story)
    async with app.run_test(size=(100, 30)) as pilot:
        shown = " ".join((await news(app, pilot)).split())
        assert "Nothing was observed: no graph of torch.compile, no program of JAX or on an xla device." in shown


async def test_an_export_is_written_beside_the_log(
    story: Training, follow: Follow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        for keys in (("enter",), ("down", "enter"), ("down", "down", "enter")):
            await pilot.press("e")
            await pilot.pause()
            await pilot.press(*keys)
            await app.workers.wait_for_complete()
    written = json.loads((tmp_path / "run.report.json").read_text())
    assert cli.main(["report", "run.log", "--json"]) == 0
    assert written == json.loads(capsys.readouterr().out)
    assert "<!doctype html>" in (tmp_path / "run.html").read_text()
    assert "<svg" in (tmp_path / "run.svg").read_text()


async def test_what_was_chosen_is_remembered(story: Training, follow: Follow) -> None:
    story.train(3)
    app = follow(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("t", "3", "q")
    again = follow(story)
    async with again.run_test(size=(80, 24)) as pilot:
        await news(again, pilot)
        assert not again.current_theme.dark
        assert again.focused is not None
        assert again.focused.id == "idle"


async def test_the_line_is_opened_in_the_editor(
    story: Training, follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("\n" * 23 + "        h = self.embedding(tokens)\n" + "\n" * 9)
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/opened\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", f"{editor} -w")
    story.leave()
    story = Training(tmp_path / "run.log", file=str(tmp_path / "train.py"))
    tell_of_two_defects(story)
    story.leave()
    app = follow(story)
    app.suspend = nullcontext  # type: ignore[method-assign]  # there is no terminal to give back
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("o")
        assert (tmp_path / "opened").read_text() == f"-w +24 {tmp_path}/train.py\n"
        for no_command in (" ", "'vi", "no-such-editor"):
            monkeypatch.setenv("VISUAL", no_command)
            await pilot.press("o")
            await pilot.pause()
            assert [one.message for one in app._notifications] == ["Set $EDITOR to the editor that is to open it."]
            app.clear_notifications()
