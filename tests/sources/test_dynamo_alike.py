"""The same operations in several pieces of a function: each is compiled first, and all are of one code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.sources.observed import Observed, observe
from xlaprof.events import DynamoCompile

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Writer(nn.Module):
    """Writes a sign more at each call, and sees all that is there."""

    def __init__(self) -> None:
        super().__init__()
        self.signs, self.mix, self.out = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)

    def forward(self, text: Any) -> Any:
        seen = self.signs(text)
        weights = torch.softmax(seen @ seen.transpose(1, 2), -1)
        mixed = torch.tanh(self.mix(weights @ seen))
        return torch.cat([text, self.out(mixed)[:, -1:].argmax(-1)], 1)


def written(model: Any, text: Any) -> Any:
    text = model(text)
    print("one")
    text = model(text)
    print("two")
    return model(text)


def first(seen: Observed) -> str:
    return next(one.why for one in seen.report.torch_compile.charges if one.what == "first")


def test_pieces_that_hold_one_code_for_other_sizes_are_counted(tmp_path: Path) -> None:
    seen = observe(tmp_path, lambda: torch.compile(written, backend="eager")(Writer(), torch.zeros(2, 3, dtype=int)))
    made = [event for event in seen.of(DynamoCompile) if event.ops]
    assert len({event.graph for event in made}) == 3
    assert len({event.operations for event in made}) == 1
    assert "2 graphs of these (" in first(seen)
    assert "have the operations of one before" in first(seen)


def test_what_they_share_compiled_by_itself_has_a_graph_for_each_size_and_then_one_for_all(tmp_path: Path) -> None:
    model = torch.compile(Writer(), backend="eager")
    seen = observe(tmp_path, lambda: written(model, torch.zeros(2, 3, dtype=int)))
    assert seen.counts.compiles == 2
    assert "have the operations" not in first(seen)
