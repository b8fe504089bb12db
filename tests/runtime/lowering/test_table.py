"""A lowering is one function in one file: it is added as CONTRIBUTING.md says, and nothing else is touched."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import torch

from xlaprof.runtime import lowering, metrics
from xlaprof.runtime.lowering import table

PAGE = Path(__file__).parents[3] / "CONTRIBUTING.md"
FAMILY = "family_of_a_fixture"

#: kept from lowerings: where and how memory lies
NOT_GIVEN = {"layout", "device", "pin_memory", "generator"}

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


def test_every_lowering_takes_the_arguments_of_its_operator() -> None:
    checked = 0
    for name, fn in table.LOWERINGS.items():
        namespace, packet, overload = name.split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if op is None:  # of another version of PyTorch
            continue
        signature = inspect.signature(fn)
        ctx = [None] if next(iter(signature.parameters)) in ("ctx", "_") else []
        positional = [a for a in op._schema.arguments if not a.kwarg_only]
        named = {a.name: None for a in op._schema.arguments if a.kwarg_only and a.name not in NOT_GIVEN}
        required = sum(not a.has_default_value() for a in positional)
        for count in (required, len(positional)):
            try:
                signature.bind(*ctx, *[None] * count, **named)
            except TypeError as error:
                pytest.fail(f"{name} with {count} arguments and {sorted(named)}: {error}")
        checked += 1
    assert checked > 550
