"""docs/graph-breaks.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch._dynamo

PAGE = Path(__file__).parents[2] / "docs" / "graph-breaks.md"


def test_the_pages_blocks_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch._dynamo.reset()
    page = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        start = page[: page.index(block)].count("\n")
        exec(compile("\n" * start + block, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == "looked at the wind\n" * 3
