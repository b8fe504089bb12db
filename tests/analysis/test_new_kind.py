"""CONTRIBUTING.md on a new kind of finding, followed to the letter, in a folder apart: kind, page and test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest

from xlaprof.analysis import findings
from xlaprof.cli import main
from xlaprof.commands import explain

ROOT = Path(__file__).parents[2]
KIND, PAGE, TEST = (
    block
    for _, block in re.findall(
        r"^(````?)\w+\n(.*?)^\1$",
        (ROOT / "CONTRIBUTING.md")
        .read_text("utf-8")
        .partition("## Adding a kind of finding\n")[2]
        .partition("\n## Adding a CLI verb")[0],
        re.DOTALL | re.MULTILINE,
    )
)
NAME = KIND[len('"""') :].partition(":")[0]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The kind is there: its file in the folder of kinds, its page in that of pages. Gives a folder to work in."""
    (tmp_path / f"{NAME}.py").write_text(KIND)
    for page in explain.PAGES.glob("*.md"):
        (tmp_path / page.name).write_bytes(page.read_bytes())
    (tmp_path / f"{NAME}.md").write_text(PAGE)
    monkeypatch.setattr(findings, "__path__", [*findings.__path__, str(tmp_path)])
    monkeypatch.setattr(explain, "PAGES", tmp_path)
    findings.kinds.cache_clear()
    (tmp_path / "work").mkdir()
    yield tmp_path / "work"
    sys.modules.pop(f"{findings.__name__}.{NAME}", None)
    findings.kinds.cache_clear()


def documented_tests() -> dict[str, Callable[[], None]]:
    scope: dict[str, Callable[[], None]] = {}
    exec(compile(TEST, "CONTRIBUTING.md", "exec"), scope)
    return {name: test for name, test in scope.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", documented_tests())
def test_its_test_passes(name: str, added: Path) -> None:
    documented_tests()[name]()


def test_it_is_a_kind_as_all_others_are(added: Path) -> None:
    assert NAME in findings.names()
    assert findings.kinds()[NAME].blamed_for


def test_explain_prints_its_page(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", NAME]) == 0
    assert capsys.readouterr().out == PAGE


def test_its_programs_have_the_finding_and_have_it_no_more(added: Path) -> None:
    """The programs are recorded in processes of their own, and analysed here, where the kind is known."""
    from xlaprof import log
    from xlaprof.analysis.run import Run

    found = []
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        (added / "program.py").write_text(program)
        command = ["-m", "xlaprof", "run", "--no-report", "-o", str(added / "run.log"), "program.py"]
        assert processes.run(*command, cwd=added).returncode == 0
        with log.read(added / "run.log") as events:
            report = Run().feed_all(events).report()
        found.append([one.place.line for one in report.findings if one.kind == NAME])
    marked = PAGE.partition("```python\n")[2].splitlines().index('        with xlaprof.Trace("parse"):  # <--') + 1
    assert found == [[marked], []]
