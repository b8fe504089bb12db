"""One of something is written in the singular, by every door that shows a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from analysis.test_kinds import PLANTED
from story import Story, save

from xlaprof.cli import main
from xlaprof.events import Dropped, Event

#: "at line 1 reads" and "aten::x 1 is" are no counts, "0.1 steps" and "-1 are" no ones
COUNTED_WRONG = re.compile(r"(?<!line )(?<!lines )(?<![\d.,:\[\-/])\b1 (?!ms\b|us\b|ns\b|is\b|was\b)[a-z]+s\b")
LIMITS = (
    ("--max-recompiles", "0"),
    ("--max-compiles", "0"),
    ("--max-compile-time", "1ns"),
    ("--max-transfers-per-step", "0"),
    ("--max-graph-breaks", "0"),
    ("--no-fallback",),
    ("--no-findings",),
)


def one_of_everything() -> list[Event]:
    """One step with one graph of one operation, one read, one fallback, one lost event."""
    story = Story()
    line = story.line(7, "loss.item()")
    with story.step(), story.scope("forward"):
        story.fallback(line, "aten::linalg_eig", 3)
        story.barrier(line, 5, compile=5_000, ops=1)
        story.read(line)
    story.put(Dropped(t=story.now, count=1, why="disk"))
    return story.finish()


STORIES = {**PLANTED, "one of everything": one_of_everything}


@pytest.mark.parametrize("name", STORIES)
def test_one_of_something_is_written_in_the_singular(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(STORIES[name](), Path("run.log"))
    save(one_of_everything(), Path("other.log"))
    kind = name.partition(":")[0]
    commands = [
        ["report", "run.log"],
        ["report", "--json", "run.log"],
        ["compare", "--anyway", "run.log", "other.log"],
        *(["check", "run.log", *limit] for limit in LIMITS),
        *([["explain", kind, "run.log"]] if name in PLANTED else []),
    ]
    for command in commands:
        main(command)
        out, err = capsys.readouterr()
        assert out + err
        assert not COUNTED_WRONG.findall(out + err), command


def test_the_walk_sees_a_plural_of_one() -> None:
    assert COUNTED_WRONG.findall("Compilation  1 programs in 1.19 s, 11 steps, at line 1 reads, 0.1 steps") == [
        "1 programs"
    ]
