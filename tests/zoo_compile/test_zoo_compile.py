"""The zoo of torch.compile: what is found in the kept recordings is what the page says, misses and all."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from difflib import SequenceMatcher
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
PROGRAMS = [story for story in STORIES if not story.name.endswith("_fixed")]
FIXED = [story for story in STORIES if story.name.endswith("_fixed")]
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


@pytest.mark.parametrize("story", PROGRAMS, ids=lambda story: story.name)
def test_every_line_of_the_author_counts_and_no_mistake_was_dropped(story: Story) -> None:
    author = json.loads(story.path.with_suffix(".truth.json").read_text())
    wanted = [{one["line"]} if isinstance(one["line"], int) else set(one["line"]) for one in author["mistakes"]]
    told = [one.lines for one in (*story.truths, *story.acceptable)]
    assert all(any(lines <= some for some in told) for lines in wanted)
    assert author["clean"] == (not story.truths)


def test_there_are_thirty_programs_some_of_them_clean() -> None:
    assert len(PROGRAMS) >= 30
    assert sum(not story.truths for story in PROGRAMS) >= 7
    kinds = Counter(one.kind for story in PROGRAMS for one in story.truths)
    assert {"recompile", "graph_break", "unrolled_loop"} <= set(kinds)


def counted(story: Story) -> dict[str, int]:
    """What PyTorch counted in the fixed version when it was written."""
    told: dict[str, int] = json.loads((FOLDER / f"{story.name.removesuffix('_fixed')}.expected.json").read_text())[
        "fixed"
    ]
    return told


def test_fixed_versions_are_of_programs_with_mistakes_and_pytorch_counted_no_break_in_them() -> None:
    assert len(FIXED) >= 8
    assert {story.name for story in FIXED} <= {f"{story.name}_fixed" for story in PROGRAMS if story.truths}
    assert all(counted(story)["graph_breaks"] == 0 for story in FIXED)


@pytest.mark.parametrize("story", FIXED, ids=lambda story: story.name)
def test_a_fixed_version_differs_from_its_program_in_a_few_lines(story: Story) -> None:
    program = next(one.path for one in PROGRAMS if f"{one.name}_fixed" == story.name)
    before, after = (path.read_text().splitlines() for path in (program, story.path))
    same = sum(block.size for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks())
    assert 0.6 * len(before) < same < len(before)


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


@pytest.mark.slow
@pytest.mark.parametrize("story", FIXED, ids=lambda story: story.name)
def test_pytorch_itself_counts_no_mistake_in_a_fixed_version(story: Story, tmp_path: Path) -> None:
    """Its own counters and its log of recompilations, in a process without xlaprof."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "counters.py"), str(story.path)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == counted(story)
