"""docs/modes.md and examples/modes.py do what they say."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import xlaprof.runtime as xr

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def lazy_afterwards() -> Iterator[None]:
    yield
    xr.eager_mode(False)


def test_the_code_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "modes.md").read_text(), re.DOTALL)
    assert len(blocks) >= 7
    namespace: dict[str, object] = {"__name__": "modes_page"}
    for number, block in enumerate(blocks):
        name = f"modes_page_{number}.py"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
        exec(compile(block, name, "exec"), namespace)


def test_the_example_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import modes

    modes.main()
    sys.modules.pop("modes")
    told = capsys.readouterr().out
    pattern = r"(\w+): (\d+) graphs run, (\d+) compiled, (\d+) operations run alone"
    counts = {mode: tuple(map(int, numbers)) for mode, *numbers in re.findall(pattern, told)}
    assert counts["lazy"] == (20, 1, 0)
    assert counts["compile"][:2] == (20, 0)  # the same graphs
    assert counts["compile"][2] < 10
    assert counts["eager"][:2] == (0, 0)
    assert counts["eager"][2] > 200
    assert "the same losses in all three" in told
