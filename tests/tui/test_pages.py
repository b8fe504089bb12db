"""The pages: graphs, functions, source, transfers, log. What they show was planted; their figures are the report's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from story import Story, save
from textual.widgets import Tree

from tests.analysis.compiling import Compiling, shape
from xlaprof import cli
from xlaprof import events as ev
from xlaprof.tui.app import LiveApp
from xlaprof.tui.widgets.table import SortedTable

from .conftest import news, screen, still, tell_of_two_defects
from .training import Training

Follow = Callable[..., LiveApp]


async def show(app: LiveApp, pilot: object, panel: str) -> str:
    """The screen with a panel on it."""
    app.action_panel(panel)
    for _ in range(3):
        await pilot.pause()  # type: ignore[attr-defined]
    return screen(app)


async def test_graphs_with_what_they_part_at(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(160, 45)) as pilot:
        await news(app, pilot)
        shown = await show(app, pilot, "graphs")
        assert "Graphs  4 programs in 5.10 s" in shown
        assert re.search(r"2 +1 +shape inp", shown)
        tree = app.query_one("#graphs-tree", Tree)
        labels = [str(node.label) for node in tree.root.children]
        assert labels[0].startswith("1  train.py:31")
        await pilot.press("down", "m", "down")
        await pilot.pause()
        shown = screen(app)
        assert "Graph 3 beside graph 2" in shown
        assert "- i64[5,128]" in shown
        assert "+ i64[3,128]" in shown


async def test_figures_of_graphs_and_transfers_are_the_reports(
    story: Training, follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(160, 45)) as pilot:
        await news(app, pilot)
        details = app._latest.details
    assert cli.main(["report", "run.log", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    stats = {one["program"]: one for one in report["compilation"]["programs"]}
    assert {one.program for one in details.graphs} == set(stats)
    for one in details.graphs:
        for field in ("ops", "inputs", "outputs", "compile_s", "lower_s", "backend_s", "runs", "busy_s", "cached"):
            assert getattr(one, field) == stats[one.program][field], field
    assert sum(one.count for one in details.transfers) == report["counters"]["TransferFromDeviceTime"]
    assert sum(one.total_s for one in details.transfers) == pytest.approx(report["seconds"]["TransferFromDeviceTime"])


async def test_what_was_alive_over_the_run_is_the_reports(
    story: Training, follow: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        assert "Memory" not in await news(app, pilot), "nothing was read yet"
        await pilot.press("M")
        await pilot.pause()
        assert app._shown == "findings"
        assert [one.message for one in app._notifications] == ["The recording holds nothing for Memory."]
        kept = ev.Kept("self.history", "list", 40, True, [story.item])
        for size in (3, 1, 7, 2):
            held = [[story.embedding, size, size << 20]]
            story.put(ev.Live(t=story.now, tensors=10 * size, bytes=size << 30, held=held, kept=kept))
            story.train_step()
        story.put(ev.Evicted(t=story.now, program=1, graph="1", limit=3))
        story.put(ev.Live(t=story.now + 1, tensors=20, bytes=2 << 30))
        shown = await news(app, pilot)
        assert "M Memory" in shown
        await pilot.press("M")
        shown = await still(app, pilot)
        assert re.search(r"last +2 GiB +20 tensors +3 programs +at 11\.4 s, after step 34", shown)
        assert re.search(r"most +7 GiB +70 tensors +4 programs +at 11\.2 s, after step 32", shown)
        assert re.search(r"2 tensors, 2 MiB +train.py:24 +h = self.embedding\(tokens\)", shown)
        assert "The list self.history keeps ever more of them: 40 elements" in shown
        await pilot.press("g", *"32", "enter")
        assert re.search(r"at cursor +1 GiB +10 tensors", await still(app, pilot))
        seen = app.report
    assert cli.main(["report", "run.log", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["memory"] == json.loads(msgspec.json.encode(seen.memory))
    assert [one["bytes"] >> 30 for one in report["memory"]["course"]] == [3, 1, 7, 2, 2]


async def test_what_programs_of_jax_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Follow) -> None:
    monkeypatch.chdir(tmp_path)
    story = Story()
    line, name = story.line(9, "state = train_step(state, batch)"), story.text("train_step")
    story.put(
        ev.JitCompile(t=story.now, dur=10_000_000, func=name, stack=line, code=story.line(3, "def train_step(state):")),
        ev.JitProgram(story.now, name, line, arguments=50 << 20, results=45 << 20, temporary=5 << 20),
    )
    save(story.events, tmp_path / "run.log")
    app = follow()
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("M")
        shown = await still(app, pilot)
        assert re.search(r"train_step +\S+:\d+ +100 MiB +50 MiB +45 MiB +5 MiB", shown), shown


async def test_transfers_by_line(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(150, 30)) as pilot:
        await news(app, pilot)
        shown = await show(app, pilot, "transfers")
        assert "Transfers  30 reads in 2.82 s" in shown
        assert re.search(r"train.py:33 +print\(loss.item\(\)\) +from .* 30 +2.82 s", shown)
        batch = story.line(22, "batch = batch.to(device)", func="train_step")
        story.put(*(ev.TransferToDevice(story.now, 40_000_000, stack=batch, bytes=3 << 20) for _ in range(2)))
        story.train(1)
        await news(app, pilot)
        shown = await show(app, pilot, "transfers")
        assert "Transfers  30 reads in 2.82 s, 2 uploads in 80 ms" in shown
        assert re.search(r"train.py:22 +batch = batch.to\(device\) +to +2 +80 ms +6 MiB", shown)
        await pilot.press("g", *"31", "enter")
        await app.workers.wait_for_complete()
        assert "Transfers  at step 31: 2 uploads in 80 ms" in await news(app, pilot)
        assert app._latest is not None
        sent = next(one for one in app._latest.details.lines if one.place.line == 22)
        assert ("upload", 0.08, "uploaded twice, 6 MiB") in sent.items, "for Source"


async def test_the_source_has_costs_in_its_gutter(tmp_path: Path, story: Training, follow: Follow) -> None:
    (tmp_path / "train.py").write_text("# a comment\n" * 30 + "    xlaprof.runtime.sync()\n\n    print(loss.item())\n")
    story.leave()
    story = Training(tmp_path / "run.log", file=str(tmp_path / "train.py"))
    tell_of_two_defects(story)
    story.leave()
    app = follow(story)
    async with app.run_test(size=(140, 40)) as pilot:
        await news(app, pilot)
        await show(app, pilot, "source")
        await app.workers.wait_for_complete()
        await pilot.pause()
        shown = screen(app)
        assert re.search(r"5.10 s compile +31 > +xlaprof.runtime.sync\(\)", shown)
        assert re.search(r"2.82 s transfer wait +33 +print\(loss.item\(\)\)", shown)
        assert re.search(r" 30 +# a comment", shown), "what costs nothing has no bar"


async def test_why_torch_tpu_cut_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Follow) -> None:
    monkeypatch.chdir(tmp_path)
    story = Story()
    line = story.line(13, "print(loss.item())")
    for number in range(4):
        story.emit(ev.TorchTpuBatch(story.now, 50_000_000, reason="item()", cached=number > 0, stack=line))
    save(story.events, tmp_path / "run.log")
    app = follow()
    async with app.run_test(size=(140, 40)) as pilot:
        await news(app, pilot)
        shown = await show(app, pilot, "functions")
        assert "TorchTPU: 4 batches of operations: 3 found in its cach" in shown
        assert "item() (TorchTPU)  cut 4 times: a value was read; 1 compiled in 50 m" in shown
        await pilot.press("down")
        shown = await still(app, pilot)
        assert "Batches of TorchTPU" in shown
        assert "print(loss.item())" in shown
        assert "a value was read; 1 compiled in 50 ms; mostly behind train.py:13" in shown


async def test_functions_of_torch_compile_are_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: Follow
) -> None:
    monkeypatch.chdir(tmp_path)
    compiling = Compiling()
    compiling.broke("0/0", 21, "the branch depends on the value of a tensor", hint="Use torch.where().", gb="GB0170")
    compiling.compile("0/0", 400, phases={"Dynamo": 40_000_000, "Inductor": 310_000_000})
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", 90, resumed=place)
    compiling.recompile("1/1", shape(4, 5), ms=60, resumed=place)
    where = {"func": compiling.func, "code": compiling.code}
    compiling.story.emit(ev.TimedGraph(compiling.story.now, 1, "0/0", **where))
    after, took, steps = [0] + [10_000_000] * 9, [3_000_000] * 10, [0] + [1] * 9
    compiling.story.emit(ev.GraphCalls(compiling.story.now, [1] * 10, after, took, steps=steps))
    save(compiling.story.events, tmp_path / "run.log")
    app = follow()
    async with app.run_test(size=(140, 40)) as pilot:
        await news(app, pilot)
        shown = await show(app, pilot, "functions")
        assert "Functions  torch.compile: 3 graphs in 550 ms; run 30% of the time" in shown
        assert "30% of the time ran in its graphs: 3.0 ms of" in shown
        assert "forward  train.py:10  3 graphs, 550 ms" in shown
        assert "break at train.py:21: the branch depends on the value of a ten" in shown
        assert "compiled again: shape of x: f32[4,3] → f32[5,3]" in shown, "no step was recorded"
        assert re.search(r"Inductor +█+ +310 ms +56%", shown), "of 550 ms, in this and the function behind the break"
        assert re.search(r"unaccounted +\S+ +200 ms +36%", shown)
        await pilot.press("down")
        await pilot.pause()
        shown = screen(app)
        assert "Graph break GB0170" in shown
        assert "Use torch.where()." in shown


async def test_functions_that_were_compiled_in_the_step_under_the_cursor_stand_out(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiling = Compiling()
    for number in range(5):
        with compiling.story.step():
            compiling.story.spend(10)
            if number == 0:
                compiling.compile(
                    "0/0", 400, func=compiling.story.text("other"), code=compiling.story.line(5, "def other")
                )
            if number == 1:
                compiling.compile("1/0", 90)
            if number == 3:
                compiling.recompile("1/1", shape(4, 5), ms=60)
    save(compiling.story.events, tmp_path / "run.log")
    app = follow()
    async with app.run_test(size=(140, 40)) as pilot:
        await news(app, pilot)
        await show(app, pilot, "functions")
        tree = app.query_one("#functions-tree", Tree)

        async def standing_out(step: str) -> tuple[str, list[str]]:
            await pilot.press("g", step, "enter")
            await app.workers.wait_for_complete()
            shown = await news(app, pilot)
            labels = [node.label for one in tree.root.children for node in (one, *one.children)]
            note = re.search(r"Functions  (. compiled at step .); torch.compile: 3 graphs", shown)
            assert note is not None, shown
            return note[1], [label.plain.split(":")[0].split("  ")[0] for label in labels if label.style != "dim"]

        assert await standing_out("1") == ("1 compiled at step 1", ["forward"])
        assert tree.cursor_node is not None
        assert tree.cursor_node.label.plain.startswith("forward")
        assert await standing_out("3") == ("1 compiled at step 3", ["forward", "compiled again in step 3"])
        assert await standing_out("2") == ("0 compiled at step 2", [])
        await pilot.press("f")
        await news(app, pilot)
        assert all(node.label.style != "dim" for node in tree.root.children), "the whole run"


async def test_the_log_is_filtered(story: Training, follow: Follow) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        shown = await show(app, pilot, "log")
        assert "the last " in shown
        await pilot.press("slash", *"compile")
        await pilot.pause()
        table = app._panels["log"].table()
        assert isinstance(table, SortedTable)
        assert table.shown == 4
        await pilot.press("escape")
        await pilot.pause()
        assert table.shown > 100


async def test_a_run_without_anything_has_pages_that_say_so(story: Training, follow: Follow) -> None:
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        assert "no program has been compiled on an xla device" in await show(app, pilot, "graphs")
        assert "no function was compiled by torch.compile" in await show(app, pilot, "functions")
        assert "Transfers  none so far" in await show(app, pilot, "transfers")
        assert "no line has a cost yet" in await show(app, pilot, "source")
