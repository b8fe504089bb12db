"""The examples of CONTRIBUTING.md, for tests that follow it to the letter."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

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


def add_module(package: ModuleType, name: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``package`` find a module ``name`` with ``code`` in a folder of its own, until the test ends."""
    folder.mkdir()
    (folder / f"{name}.py").write_text(code)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
