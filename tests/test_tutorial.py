"""docs/tutorial.md: its program, its changes and its commands do what the page shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import tutorial  # noqa: E402

KIND = re.compile(r"^(?: *\d+|-|\+) (recompile|transfer|fallback|idle_gap|missing_barrier|growth)  ", re.MULTILINE)


def facts(page: str) -> list[tuple[str, set[str], set[str], list[str]]]:
    """Of each command what does not depend on the clock: it, kinds of findings, lines of the two that are certain,
    exit codes."""
    commands = re.findall(r"^\$ (xlaprof .*)\n((?:(?!\$ |```).*\n)*)", page, re.MULTILINE)
    return [
        (
            command,
            set(KIND.findall(output)) - {"idle_gap"},  # on a busy machine it may not be worth a finding
            set(re.findall(r"(?<!python )train\.py:\d+(?= )", output))
            & _lines(page),  # "python ...": what filled a gap
            re.findall(r"^exit code \d+", output, re.MULTILINE),
        )
        for command, output in commands
    ]


def _lines(page: str) -> set[str]:
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0].splitlines()
    planted = ("loss.item()", "loss = F.cross_entropy", "x, y = x.to")
    return {f"train.py:{n}" for n, line in enumerate(program, 1) if any(code in line for code in planted)}


def test_the_page_is_what_its_commands_print() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text()
    shown = facts(page)
    assert shown == facts(tutorial.run(page))
    assert [codes for _, _, _, codes in shown] == [[], [], [], [], [], ["exit code 1"]]
    assert shown[0][1] == {"recompile", "transfer"}  # before
    assert shown[3][1] == {"recompile", "transfer"}  # what compare calls gone
    assert "Better: 3 findings gone; train steps" in page


def test_it_has_five_steps() -> None:
    headings = re.findall(r"^## (\d)\. ", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
    assert headings == ["1", "2", "3", "4", "5"]
