"""A program that a library drives: findings stand at the user's line, and name the library's line under it."""

from __future__ import annotations

import io
from functools import partial

import msgspec
import pytest
from rich.console import Console
from story import Story

from xlaprof.analysis.model import Finding
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import short, span, way
from xlaprof.events import Frame, Look, Sample, Stack, Text
from xlaprof.pages.json import finding_to_json
from xlaprof.pages.page import show_page
from xlaprof.pages.terminal import render

TRAINER = "/venv/lib/python3.11/site-packages/transformers/trainer.py"
USERS = (8, "trainer.train()", "<module>")
STEP = (TRAINER, 2500, "Trainer._inner_training_loop", "self.training_step(model, inputs)", 2400)
LOG = (TRAINER, 2560, "Trainer._inner_training_loop", "self._log()", 2400)
READ = (TRAINER, 3100, "Trainer._maybe_log_save_evaluate", "loss = tr_loss.item()", 0)
CHECK = (TRAINER, 2511, "Trainer._inner_training_loop", "if torch.isnan(tr_loss):", 2400)
BARRIER = (TRAINER, 2540, "Trainer._inner_training_loop", "xm.mark_step()", 2400)


def training() -> Story:
    """The library ends each step with a barrier, and looks at the loss at one or the other of two lines."""
    story = Story()
    barrier, read, check = (story.line(*USERS, library=below) for below in ((BARRIER,), (READ, LOG), (CHECK,)))
    for n in range(80):
        story.trace(4)
        story.barrier(barrier, 20)
        story.read(check if n % 2 else read)
    return story


def names_of(story: Story) -> Names:
    return story.run().names


@pytest.fixture(scope="module")
def found() -> dict[int, Finding]:
    return {finding.place.acting.line: finding for finding in training().findings("transfer")}


def test_two_lines_of_a_library_that_one_of_the_users_reaches_are_two_findings(found: dict[int, Finding]) -> None:
    assert set(found) == {READ[1], CHECK[1]}
    assert {(one.place.file, one.place.line) for one in found.values()} == {("train.py", 8)}
    assert len({one.id for one in found.values()}) == 2


def test_the_librarys_own_words_are_read(found: dict[int, Finding]) -> None:
    assert found[READ[1]].cause.startswith(".item() reads one number")
    assert "NaN or infinity" in found[CHECK[1]].cause


def test_the_rhythm_is_that_of_the_librarys_loop(found: dict[int, Finding]) -> None:
    assert found[READ[1]].rhythm == "every 2 steps"


def test_what_no_option_of_the_library_changes_is_an_account_and_no_finding() -> None:
    story = Story()
    other = ("/venv/lib/python3.11/site-packages/somelib/loop.py", 31, "Loop.run", "if loss.isnan():", 20)
    barrier, check = (story.line(*USERS, library=(below,)) for below in (BARRIER, other))
    for _ in range(40):
        story.trace(4)
        story.barrier(barrier, 20)
        story.read(check)
        story.trace(10)
    report = story.report()
    assert report.findings == ()
    assert report.predicted is None
    (idle,) = (account for account in report.accounts if account.what == "idle")
    assert "somelib's own, at somelib/loop.py:31" in idle.text


@pytest.mark.parametrize("looked", [False, True])
def test_an_unseen_gap_between_two_lines_of_a_library_is_its_own_unless_it_calls_the_program_there(
    looked: bool,
) -> None:
    """``looked``: looks at the main thread found a line of the program's that the library calls between the two."""
    story = Story()
    strategy = "/venv/lib/python3.11/site-packages/somelib/strategy.py"
    before, after = (
        story.line(*USERS, library=((strategy, line, "Strategy.backward", "self.run(loss)", 0), STEP))
        for line in (213, 217)
    )
    barrier = story.line(*USERS, library=(BARRIER,))
    text = story.text
    where, main, below = text("train.py"), text("<module>"), text(strategy)
    frames = [Frame(where, 41, text("count_words"), text("words.update(line)")), Frame(where, 8, main, text(USERS[1]))]
    called = 1_000
    library = [Frame(below, 215, text("Strategy.backward"), text("self.call(hook)"))]
    story.put(Stack(id=called, frames=frames, library=library, depths=[1]))
    for n in range(60):
        with story.step():
            story.trace(2)
            story.wait()
            if looked and n % 6 == 0:
                story.emit(Look(story.now, 100_000_000, called, "python"))
            story.python(8, before, after)
            story.trace(2)
            story.barrier(barrier, 5)
    found = story.findings("idle_gap")
    assert [one.place.acting.line for one in found] == ([213] if looked else [])
    (idle,) = (account for account in story.report().accounts if account.what == "idle")
    assert ("somelib's own, at somelib/strategy.py:213" in idle.text) is not looked


FITS = "/venv/lib/python3.11/site-packages/lightning/"
STEPS = (FITS + "loops.py", 40, "Loop.run", "self.advance()", 38)
LOGS = (
    (FITS + "loggers/csv_logs.py", 240, "Writer.save", "self._fs.open(path)", 0),
    (FITS + "loggers/csv_logs.py", 228, "Writer.save", "self._keys()", 0),
    (FITS + "loggers/logger.py", 90, "Logger.log_metrics", "flatten(metrics)", 0),
)


@pytest.mark.parametrize("lines", [3, 1])
def test_gaps_that_one_option_of_a_library_ends_are_one_finding(lines: int) -> None:
    """A logger fills three gaps of each turn, none of which is felt by itself; another package writes for it."""
    story = Story()
    deeper = ("/venv/lib/python3.11/site-packages/writing/files.py", 4, "append", "os.write(handle, row)", 0)
    turn = (FITS + "loops.py", 45, "Loop.run", "self.log()", 38)
    barrier, reads = (story.line(*USERS, library=(below,)) for below in (STEPS, (*STEPS[:1], 41, *STEPS[2:])))
    logs = [story.line(*USERS, library=(deeper, line, (*turn[:1], 45 + at, *turn[2:]))) for at, line in enumerate(LOGS)]
    for _ in range(60):
        with story.step():
            story.trace(100)
            for stack in logs[:lines]:
                story.wait()
                story.emit(Sample(story.now, 4_000_000, stack, "python"))
                story.python(4, reads, reads)
                story.trace(1)
            story.barrier(barrier, 5)
    found = story.findings("idle_gap")
    assert len(found) == (lines == 3)
    for one in found:
        assert (one.place.line, one.rhythm) == (8, "every step")
        assert one.cost_s == pytest.approx(60 * 0.012, rel=0.05)
        assert "log_every_n_steps" in one.advice


def test_what_is_not_felt_is_no_finding_at_a_librarys_line() -> None:
    story = Story()
    barrier, read = (story.line(*USERS, library=below) for below in ((BARRIER,), (READ, LOG)))
    for n in range(200):
        story.trace(4)
        story.barrier(barrier, 20, graph=f"graph {n % 4}", compile=900)
        story.wait()
        if n % 16 == 0:
            story.read(read, copy=1)
    assert story.findings("transfer") == []


def test_what_is_felt_in_each_step_is_a_finding_however_long_the_run_compiled() -> None:
    story = Story()
    barrier, read = (story.line(*USERS, library=below) for below in ((BARRIER,), (READ, LOG)))
    for n in range(100):
        with story.step():
            story.trace(4)
            story.barrier(barrier, 20, graph=f"graph {n % 4}", compile=20_000)
            story.read(read, copy=3)
    (finding,) = story.findings("transfer")
    assert finding.cost_s < 0.01 * story.report().run.wall_s


def test_the_head_of_a_librarys_loop_stands_under_the_users_line() -> None:
    story = Story()
    stack = story.line(*USERS, loops=(7,), library=(READ, LOG))
    inner, outer = names_of(story).loops(stack)
    assert (inner.line, inner.code) == (8, "trainer.train()")
    assert (inner.acting.line, inner.acting.code, inner.acting.loop) == (2400, "for batch in epoch:", 2400)
    assert (outer.line, outer.code, outer.library) == (7, "for turn in turns:", ())


def test_report_and_json_show_the_librarys_line_and_the_way_there(found: dict[int, Finding]) -> None:
    page = io.StringIO()
    show_page(partial(render, training().report()), Console(file=page, width=100, color_system=None))
    assert "in transformers/trainer.py:3100 (_maybe_log_save_evaluate): loss = tr_loss.item()" in page.getvalue()
    assert "by way of _inner_training_loop" in page.getvalue()
    written = finding_to_json(found[READ[1]])
    assert (written["file"], written["line"], written["code"]) == ("train.py", 8, "trainer.train()")
    assert [(line["line"], line["function"], line["loop"]) for line in written["library"]] == [
        (3100, "Trainer._maybe_log_save_evaluate", 0),
        (2560, "Trainer._inner_training_loop", 2400),
    ]
    assert way(found[READ[1]].place) == "_inner_training_loop"


def test_a_stretch_of_python_between_two_lines_of_a_library_is_named_there() -> None:
    story = Story()
    step, log = story.line(*USERS, library=(STEP,)), story.line(*USERS, library=(READ, LOG))
    names = names_of(story)
    before, after = names.bracket(step, log)
    assert (short(before), short(after)) == ("transformers/trainer.py:2500", "transformers/trainer.py:2560")
    assert span(before, after) == "transformers/trainer.py:2500-2560"
    assert before.line == after.line == 8


def test_names_of_two_recordings_are_one_where_their_libraries_lines_are() -> None:
    story, other = Story(), Story()
    mine = story.line(*USERS, library=(READ, LOG))
    other.line(3, "other()")
    theirs, differs = other.line(*USERS, library=(READ, LOG)), other.line(*USERS, library=(CHECK,))
    names = names_of(story)
    ids = names.adopt(names_of(other))
    assert ids.stack(theirs) == mine
    assert names.place(ids.stack(differs)).acting.line == CHECK[1]


def test_a_log_without_libraries_lines_is_read_as_before() -> None:
    names = Names()
    for id, text in enumerate(("train.py", "main", "x.item()"), 1):
        names.on_text(Text(id, text))
    names.on_stack(msgspec.json.decode(b'{"k": "stack", "id": 1, "frames": [[1, 8, 2, 3, 7]]}', type=Stack))
    place = names.place(1)
    assert (place.file, place.line, place.code, place.library) == ("train.py", 8, "x.item()", ())
    assert place.acting is place
