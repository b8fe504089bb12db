"""A lowering is one function in one file: it is added as CONTRIBUTING.md says, and nothing else is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from xlaprof.runtime import lowering, metrics
from xlaprof.runtime.lowering import table

PAGE = Path(__file__).parents[3] / "CONTRIBUTING.md"
FAMILY = "family_of_a_fixture"

library = torch.library.Library("xlaprof_lowering", "FRAGMENT")
library.define("hypot(Tensor self, Tensor other) -> Tensor")
library.impl("hypot", torch.hypot, "Meta")


def test_a_lowering_is_added_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PAGE.read_text().split("## Adding a lowering")[1].split("```python\n")[1].split("```")[0]
    assert "aten.hypot.default" in example
    name = "xlaprof_lowering.hypot.default"
    (tmp_path / f"{FAMILY}.py").write_text(example.replace("aten.hypot.default", name))
    monkeypatch.setattr(lowering, "__path__", [*lowering.__path__, str(tmp_path)])
    monkeypatch.setitem(table.LOWERINGS, name, None)  # taken out again at the end
    del table.LOWERINGS[name]
    try:
        table.load()
        legs = torch.tensor([3.0, 5.0], device="xla"), torch.tensor([4.0, 12.0], device="xla")
        torch.testing.assert_close(torch.ops.xlaprof_lowering.hypot(*legs).cpu(), torch.tensor([5.0, 13.0]))
    finally:
        sys.modules.pop(f"{lowering.__name__}.{FAMILY}", None)
    assert "xlaprof_lowering::hypot" not in metrics.counter_names()
