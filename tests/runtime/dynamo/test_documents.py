"""docs/torch-compile.md and examples/compiled.py do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_pages_blocks_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "torch-compile.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        start = page[: page.index(block)].count("\n")
        exec(compile("\n" * start + block, str(ROOT / "docs" / "torch-compile.md"), "exec"), names)
    reported = capsys.readouterr().out
    assert reported.startswith("torch.Size([5, 4])\n3\n")
    assert "its buffer was donated" in reported


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "compiled.py"), run_name="__main__")
    assert "executions per step: lazy 1, openxla 3" in capsys.readouterr().out
