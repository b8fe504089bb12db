"""The examples of CONTRIBUTING.md, for tests that follow it to the letter."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

_TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def blocks(heading: str) -> list[str]:
    """The blocks of code below ``heading``."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", _TEXT, re.DOTALL | re.MULTILINE)
    assert section is not None, heading
    return re.findall(r"^```python\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)


def examples(code: str) -> list[Callable[..., None]]:
    """The tests that ``code`` defines."""
    scope: dict[str, Callable[..., None]] = {}
    exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), scope)
    return [test for name, test in scope.items() if name.startswith("test_")]
