"""The code of programs on the screen: searched, with the user's lines, and two programs beside each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Static

from xlaprof import events as ev
from xlaprof.commands import _texts
from xlaprof.compiled import beside
from xlaprof.compiled.lines import places
from xlaprof.tui.app import LiveApp
from xlaprof.tui.screens.code import CodeScreen
from xlaprof.tui.widgets.texts import TextLines

from .conftest import news, screen, still, tell_of_two_defects
from .training import Training

SOURCE = "# a comment\n" * 23 + "    h = self.embedding(tokens)\n" + "\n" * 6 + "    xlaprof.runtime.sync()\n    pass\n"
SOURCE += "    print(loss.item())\n"
IR = """IR {{
  %0 = f32[] prim::Constant(), xla_shape=f32[], value=2
  %1 = f32[{rows},16]{{1,0}} aten::embedding(%0), location=train_step@{file}:24
  %2 = f32[{rows},16]{{1,0}} aten::relu(%1), location=train_step@{file}:32
}}
"""


@pytest.fixture
def coded(tmp_path: Path, story: Training) -> Training:
    """A training of whose first two graphs the texts were kept."""
    story.leave()
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    story = Training(tmp_path / "run.log", file=str(file))
    tell_of_two_defects(story)
    (tmp_path / "run.code").mkdir()
    for program, rows in (("1", 8), ("2", 5)):
        (tmp_path / "run.code" / f"{program}.ir.txt").write_text(IR.format(rows=rows, file=file))
        (tmp_path / "run.code" / f"{program}.hlo.txt").write_text(f"HloModule graph_{program}\n")
        for form in ("ir", "hlo"):
            name = story.text(f"graph_{program}")
            kept = f"{program}.{form}.txt"
            story.put(
                ev.Code(t=story.now, source="xla", key=program, form=form, file=kept, func=name, stack=story.sync)
            )
    story.leave()
    return story


async def settled(app: LiveApp, pilot: object) -> str:
    """The screen once what is read in threads is there."""
    await pilot.pause()  # type: ignore[attr-defined]
    await app.workers.wait_for_complete()
    return await still(app, pilot)  # type: ignore[arg-type]


async def test_the_code_of_a_graph_and_another_beside_it(coded: Training, follow: Callable[..., LiveApp]) -> None:
    app = follow(coded)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("7", "enter")
        shown = await settled(app, pilot)
        assert "xla:1  graph_1  1 line   [hlo], ir" in shown
        await pilot.press("f")
        assert "[ir]" in await settled(app, pilot)
        await pilot.press("slash", *"EMBEDDING", "enter")
        shown = await settled(app, pilot)
        assert "24 >     h = self.embedding(tokens)" in shown
        assert app._looked_at is not None
        assert (Path(app._looked_at.file).name, app._looked_at.line) == ("train.py", 24)
        await pilot.press("escape", "down")
        assert "32 >     pass" in await settled(app, pilot), "a line that the recording does not hold"
        await pilot.press("d", "enter")
        shown = await settled(app, pilot)
        assert "xla:2 | xla:1  ir: 1 difference, the first is marked" in shown
        assert app.screen.query_one("#code-left", TextLines).cursor == 2
        await pilot.press("up", "n")
        await settled(app, pilot)
        assert [one.cursor for one in app.screen.query(TextLines)] == [2, 2]
        await pilot.press("escape", "right_square_bracket")
        assert "xla:2  graph_2" in await settled(app, pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, CodeScreen)


async def test_a_file_that_has_changed_is_not_shown_around_a_line(
    coded: Training, follow: Callable[..., LiveApp], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import torch\n" + SOURCE)
    app = follow(coded)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("7", "enter")
        await settled(app, pilot)
        await pilot.press("f")
        await settled(app, pilot)
        await pilot.press("down", "down")
        shown = await settled(app, pilot)
        assert "has changed since the recording" in shown
        assert "24 >     h = self.embedding" not in shown
        await pilot.press("down")
        assert "does not hold the text of line 32" in " ".join((await settled(app, pilot)).split())


async def test_without_texts_one_line_says_how_to_get_them(story: Training, follow: Callable[..., LiveApp]) -> None:
    tell_of_two_defects(story)
    app = follow(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("7", "enter")
        shown = await settled(app, pilot)
        assert "recorded without the texts of its programs. With them: xlaprof run --code -o run.log" in shown


async def test_a_huge_text_is_bounded(
    coded: Training, follow: Callable[..., LiveApp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_texts, "_MOST", 1_000)
    (tmp_path / "run.code" / "1.hlo.txt").write_text("x" * 5_000 + "\x1b[31m\n" + "y\n" * 5_000)
    app = follow(coded)
    async with app.run_test(size=(80, 24)) as pilot:
        await news(app, pilot)
        await pilot.press("7", "enter")
        await settled(app, pilot)
        assert "\x1b" not in screen(app)
        await pilot.press("end")
        assert "... and 4,001 more lines: xlaprof show run.log xla:1 --form 'hlo'" in await settled(app, pilot)


async def test_a_program_without_texts_among_others(coded: Training, follow: Callable[..., LiveApp]) -> None:
    app = follow(coded)
    async with app.run_test(size=(120, 40)) as pilot:
        await news(app, pilot)
        await pilot.press("7", "down", "down", "enter")
        await settled(app, pilot)
        assert "No text of this program was kept" in str(app.screen.query_one("#code-said", Static).content)


def test_each_line_says_where_it_comes_from() -> None:
    fx = [
        "def forward(self):",
        "  # File: /home/ada/a.py:3 in f, code: y = x",
        "  y = x * 2",
        "",
        "  # done",
        "  return y",
    ]
    assert list(places(fx)) == [None, *[("/home/ada/a.py", 3)] * 5]
    hlo = ["%a = f32[] add(%b), x={1}  // train.py:7", "}", "  %c = f32[]  // <string>:2"]
    assert list(places(hlo)) == [("train.py", 7), None, ("<string>", 2)]
    generated = ["# Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]", "# a.py:3, a.py:4", "x = f()"]
    assert list(places(generated)) == [None, ("a.py", 3), ("a.py", 3)]
    assert list(places(["let b = sin a  # /home/ada/a.py:9:8 (h)"])) == [("/home/ada/a.py", 9)]
    assert list(places(["// " * 200_000, "# File: " + "a" * 500_000])) == [None, None]


texts = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)


@given(texts, texts, st.sampled_from([3, 10_000]))
def test_two_texts_aligned_hold_every_line_of_both(mine: list[str], theirs: list[str], longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "_LONGEST", longest)
        rows = beside.rows(mine, theirs)
    assert [at for at, _, _ in rows if at >= 0] == list(range(len(mine)))
    assert [at for _, at, _ in rows if at >= 0] == list(range(len(theirs)))
    for one, two, same in rows:
        assert same == (one >= 0 and two >= 0 and mine[one] == theirs[two])
    common = next(
        (n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
    )
    first = next((n for n, row in enumerate(rows) if not row[2]), len(rows))
    assert first >= common or mine == theirs, "the first difference is where they part"
