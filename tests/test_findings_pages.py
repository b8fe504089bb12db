"""docs/findings: each kind has a page; its first program has the finding on the marked line, its second has not.

The programs run as the pages tell people to run them: ``xlaprof run``, in a process of their own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import processes
import pytest

from xlaprof.analysis.findings import names
from xlaprof.commands.explain import pages

FOLDER = Path(__file__).parents[1] / "docs" / "findings"
#: A graph that takes a minute to compile is no test, and CUDA graphs need a GPU: their pages have no programs,
#: tests/analysis plants the findings.
WITHOUT_PROGRAMS = {"compile_cost", "cuda_graph"}
KINDS = names()
MARK = "  # <--"
#: kinds whose programs always run; each takes two processes
QUICK = ("recompile",)


def programs(kind: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (FOLDER / f"{kind}.md").read_text("utf-8"), re.DOTALL)


def findings(program: str, folder: Path) -> list[dict[str, Any]]:
    script = folder / "program.py"
    script.write_text(program)
    done = processes.run("-m", "xlaprof", "run", "--json", "-o", str(folder / "run.log"), str(script), cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run.json").read_text())["findings"]


def test_every_kind_has_its_page_and_the_package_has_them_all() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} - {"README"} == set(KINDS)
    assert set(pages()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_says_what_it_is_how_it_looks_and_how_to_fix_it(kind: str) -> None:
    text = (FOLDER / f"{kind}.md").read_text("utf-8")
    assert text.startswith(f"# {kind}\n")
    for heading in ("## How it looks", "## How to fix it"):
        assert heading in text
    assert (len(programs(kind)), text.count(MARK)) == ((0, 0) if kind in WITHOUT_PROGRAMS else (2, 1))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow)
        for kind in KINDS
        if kind not in WITHOUT_PROGRAMS
    ],
)
def test_the_finding_is_on_the_marked_line_before_and_gone_after(kind: str, tmp_path: Path) -> None:
    before, after = programs(kind)
    line = next(number for number, text in enumerate(before.splitlines(), 1) if text.endswith(MARK))
    assert (kind, line) in {(finding["kind"], finding["line"]) for finding in findings(before, tmp_path)}
    assert kind not in {finding["kind"] for finding in findings(after, tmp_path)}
