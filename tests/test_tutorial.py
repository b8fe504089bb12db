"""docs/tutorial.md: its program, its changes and its commands do what the page shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import tutorial  # noqa: E402

FINDING = re.compile(r"^(?: *\d+|-|\+) (\w+)  (?:(?:high|medium|low)  .*?)?train\.py:(\d+) ", re.MULTILINE | re.DOTALL)
EXCEEDED = re.compile(r"^  train\.py:(\d+)  .*\n    (\w+) ", re.MULTILINE)


def facts(page: str) -> list[tuple[str, set[tuple[str, str]], list[str]]]:
    """Of each command what does not depend on the clock: it, its findings' kinds and lines, exit codes."""
    commands = re.findall(r"^\$ (xlaprof .*)\n((?:(?!\$ |```).*\n)*)", page, re.MULTILINE)
    return [(command, _findings(output), re.findall(r"^exit code \d+", output, re.M)) for command, output in commands]


def _findings(output: str) -> set[tuple[str, str]]:
    """Kind and line of each, but of idle gaps: which of them are worth a finding depends on how busy the machine is."""
    told = {(kind, line) for kind, line in FINDING.findall(output)} | {(k, n) for n, k in EXCEEDED.findall(output)}
    return {(kind, line) for kind, line in told if kind != "idle_gap"}


def test_the_page_is_what_its_commands_print() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text()
    shown = facts(page)
    planted = {("recompile", "26"), ("transfer", "32")}
    assert [findings for _, findings, _ in shown] == [planted, set(), set(), planted, set(), {("recompile", "26")}]
    assert [codes for _, _, codes in shown] == [[], [], [], [], [], ["exit code 1"]]
    assert "Better: 3 findings gone; train steps" in page
    assert shown == facts(tutorial.run(page))


def test_it_has_five_steps() -> None:
    headings = re.findall(r"^## (\d)\. ", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
    assert headings == ["1", "2", "3", "4", "5"]
