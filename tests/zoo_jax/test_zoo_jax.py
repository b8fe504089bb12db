"""The zoo of JAX's programs: what is found in their kept recordings is what the page says, misses and all."""

from __future__ import annotations

import lzma
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.test_repository import MACHINE
from tests.zoo.recordings import packed
from tests.zoo.truth import Story, score, stories
from xlaprof.analysis.findings import names

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import diagnosis  # noqa: E402

FOLDER = Path(__file__).parent
STORIES = list(stories(FOLDER))
PROGRAMS = [story for story in STORIES if not story.name.endswith("_fixed")]
_KEPT_BYTES = 220_160


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_truths_name_lines_of_their_program(story: Story) -> None:
    lines = story.path.read_text().splitlines()
    for one in (*story.truths, *story.acceptable):
        assert lines[one.line - 1].strip() == one.source
        assert all(lines[line - 1].strip() for line in one.also_ok)
        assert one.kind in names()


def test_there_are_forty_programs_and_each_mistake_has_its_fixed_version() -> None:
    assert len(PROGRAMS) >= 40
    assert sum(not story.truths for story in PROGRAMS) >= 8
    fixed = {story.name for story in STORIES} - {story.name for story in PROGRAMS}
    assert fixed == {f"{story.name}_fixed" for story in PROGRAMS if story.truths}
    kinds = Counter(one.kind for story in PROGRAMS for one in story.truths)
    assert {"recompile", "op_by_op", "idle_gap", "upload", "transfer", "unrolled_loop", "host_callback"} <= set(kinds)


def test_kept_recordings_are_small_and_remember_no_machine() -> None:
    kept = sorted((FOLDER / "recordings").iterdir())
    assert {at.name for at in kept} <= {packed(FOLDER, story.name).name for story in STORIES}
    for at in kept:
        assert at.stat().st_size <= _KEPT_BYTES
        assert not MACHINE.search(lzma.decompress(at.read_bytes())), at.name


def test_the_page_says_what_the_recordings_give_today() -> None:
    section = diagnosis.section(diagnosis.kept(STORIES, FOLDER), FOLDER.name)
    assert section == diagnosis.part_on(FOLDER.name).read_text()
    assert section in (ROOT / "docs" / "diagnosis.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("story", PROGRAMS, ids=lambda story: story.name)
def test_a_new_recording_shows_no_less(story: Story, tmp_path: Path) -> None:
    """On another machine a cost may fall below what is told; a mistake that its kept recording shows is named again."""
    at = packed(FOLDER, story.name)
    known = len(score(story, diagnosis.recordings.findings(at)).met) if at.exists() else len(story.truths)
    result = diagnosis.judge(story, tmp_path, again=False)
    assert not result.failed
    assert len(result.score.met) >= min(known, len(story.truths))
