"""A dict whose keys change is one cause, told with all of its keys; a loop that a break cuts is told as its range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from tests.sources.observed import line_of, observing

# torch's own modules, which Dynamo imports while it compiles
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def mixed(voices: dict[str, Any]) -> Any:
    total = torch.zeros(4)
    for name, voice in voices.items():
        total = total + voice * (2 if name == "bass" else 1)
    return total


def test_another_order_number_or_name_of_keys_is_one_finding_with_all_of_them(tmp_path: Path) -> None:
    with observing(tmp_path / "run.log") as found:
        fast = torch.compile(mixed, backend="eager", dynamic=False)
        for names in (("bass", "alto"), ("alto", "bass"), ("bass",), ("tenor", "bass", "alto")):
            fast({name: torch.ones(4) for name in names})
    assert found[0].changes == [
        ("value", "the keys of voices", "{'bass', 'alto'}", "{'alto', 'bass'}"),
        ("value", "the keys of voices", "{'alto', 'bass'}", "{'bass'}"),
        ("value", "the keys of voices", "{'bass'}", "{'tenor', 'bass', 'alto'}"),
    ]
    (finding,) = found[0].findings("recompile")
    assert finding.count == 3
    assert finding.place.line == line_of(mixed, "voices.items()")
    assert "the keys of voices, a constant of the graph, changed from {'bass', 'alto'} to {'alto', 'bass'}" in (
        finding.cause
    )


def test_where_the_number_of_keys_alone_matters_it_is_told(tmp_path: Path) -> None:
    def scaled(x: Any, extra: dict[str, Any]) -> Any:
        return x * len(extra)

    with observing(tmp_path / "run.log") as found:
        fast = torch.compile(scaled, backend="eager", dynamic=False)
        fast(torch.ones(4), {})
        fast(torch.ones(4), {"a": 2.0})
        fast(torch.ones(4), {"a": 2.0, "b": 3.0})
    assert found[0].changes == [("length", "extra", "0", "1"), ("length", "extra", "1", "2")]


def test_what_is_left_of_a_loop_that_a_break_cuts_is_its_range(tmp_path: Path) -> None:
    def cold(x: Any) -> bool:
        return bool(x.sum() < 0.1)

    def cooled(x: Any) -> Any:
        for _ in range(4):
            x = x * 0.5
            if cold(x):
                return x
        return x

    with observing(tmp_path / "run.log") as found:
        torch.compile(cooled, backend="eager")(torch.ones(4))
    changes = [change for change in found[0].changes if "range" in change[2]]
    assert changes == [
        ("value", "what is left of the loop", f"range({n}, 4)", f"range({n + 1}, 4)") for n in range(1, 4)
    ]
    assert "___" not in "".join(one.cause + one.advice for one in found[0].report.findings)
