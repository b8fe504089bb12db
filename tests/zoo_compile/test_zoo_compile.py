"""The zoo of torch.compile: what is found in the kept recordings is what the page says, misses and all."""

from __future__ import annotations

import json
import lzma
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.test_repository import MACHINE
from tests.zoo.recordings import packed
from tests.zoo.truth import Story, stories
from xlaprof.analysis.findings import names

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import diagnosis  # noqa: E402

FOLDER = Path(__file__).parent
STORIES = list(stories(FOLDER))
_KEPT_BYTES = 32_768
#: they start their ranks themselves, and their recordings held the waiting parent alone
_NOT_KEPT = {"zz11_radio_ranks", "zz12_rings_fsdp"}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_truths_name_lines_of_their_program(story: Story) -> None:
    lines = story.path.read_text().splitlines()
    for one in (*story.truths, *story.acceptable):
        assert lines[one.line - 1].strip() == one.source
        assert all(lines[line - 1].strip() for line in one.also_ok)
        assert one.kind in names()
    assert all(one.idea for one in story.truths), "line and kind alone may be met by another cause"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_every_line_of_the_author_counts_and_no_mistake_was_dropped(story: Story) -> None:
    author = json.loads(story.path.with_suffix(".truth.json").read_text())
    wanted = [{one["line"]} if isinstance(one["line"], int) else set(one["line"]) for one in author["mistakes"]]
    told = [one.lines for one in (*story.truths, *story.acceptable)]
    assert all(any(lines <= some for some in told) for lines in wanted)
    assert author["clean"] == (not story.truths)


def test_there_are_thirty_programs_some_of_them_clean() -> None:
    assert len(STORIES) >= 30
    assert sum(not story.truths for story in STORIES) >= 7
    kinds = Counter(one.kind for story in STORIES for one in story.truths)
    assert {"recompile", "graph_break", "unrolled_loop"} <= set(kinds)


def test_kept_recordings_are_small_and_remember_no_machine() -> None:
    kept = sorted((FOLDER / "recordings").iterdir())
    assert {at.name for at in kept} == {packed(FOLDER, s.name).name for s in STORIES if s.name not in _NOT_KEPT}
    for at in kept:
        assert at.stat().st_size <= _KEPT_BYTES
        assert not MACHINE.search(lzma.decompress(at.read_bytes())), at.name


def test_the_page_says_what_the_recordings_give_today() -> None:
    section = diagnosis.section(diagnosis.kept(STORIES, FOLDER), FOLDER.name)
    assert section == diagnosis.part_on(FOLDER.name).read_text()
    assert section in (ROOT / "docs" / "diagnosis.md").read_text()
