"""Random programs with one planted change each are explained as what was planted. Nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xlaprof.runtime as xr
from xlaprof.analysis.diagnosis import cause
from xlaprof.events import Compile
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.execution import plans
from xlaprof.runtime.recompile import graph_diff
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.graph import extract

#: one line each, all from f32[n,6] to the same
STEPS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "sin": lambda x, _: x.sin(),
    "tanh": lambda x, _: x.tanh(),
    "scale": lambda x, p: x * p["scale"],
    "shift": lambda x, _: x + 0.75,
    "flip": lambda x, p: x.flip(p["dim"]),
    "square": lambda x, _: x @ x.new_full((6, 6), 0.5),
    "clamp": lambda x, _: x.clamp(-2.5, 2.5),
}
SPARE = lambda x: x.erf()  # noqa: E731  (a line of its own)
PLACE = (RawFrame("train.py", 40, "train"),)


class Planted(NamedTuple):
    what: str
    at: int
    rows: int
    scale: float


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    xr.sync()
    yield
    xr.sync()


def recorded(steps: list[str], change: Planted | None) -> graph_diff.Recorded | None:
    """Record one step up to its barrier: how its graph differs from those before."""
    tape = tapes.tape()
    rows, what = (change.rows, change.what) if change else (4, "")
    dtype = torch.float64 if what == "dtype" else torch.float32
    parameters = {"scale": change.scale if change and what == "scalar" else 0.5, "dim": int(what == "argument")}
    x = torch.ones(rows, 6, dtype=dtype).to("xla")
    held = []
    for i, name in enumerate(steps):
        if change and what == "added" and change.at == i:
            x = SPARE(x)
        if not (change and what == "removed" and change.at == i):
            x = SPARE(x) if change and what == "replaced" and change.at == i else STEPS[name](x, parameters)
        if change and what == "held" and change.at == i:
            held.append(x)
    live = tape.live()
    slots = tuple(sorted({storage.slot for storage in live}))
    end = tape.node
    trace = graph_diff.remember(tape, "sync", PLACE, end, extract(end, slots, tape.input_at), slots, lambda: None)
    plans.use(end)
    diff = graph_diff.record(tape, trace, live)
    del x, held, live
    tape.reset()
    return diff


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=12),
    what=st.sampled_from(["shape", "dtype", "scalar", "argument", "added", "removed", "replaced", "held"]),
    where=st.integers(0, 11),
    rows=st.sampled_from([1, 2, 3, 5, 7]),
    scale=st.sampled_from([0.0, 1.0, -1.0]),
)
@settings(max_examples=40, deadline=None)
def test_what_was_planted_is_reported(steps: list[str], what: str, where: int, rows: int, scale: float) -> None:
    tape = tapes.tape()
    tape.forget()
    if what == "scalar":
        steps = [*steps, "scale"]
    if what == "argument":
        steps = [*steps, "flip"]
    at = where % len(steps)
    if what == "held":  # not the last: that is alive in any case
        at = where % (len(steps) - 1)
    planted = Planted(what, at, rows if what == "shape" else 4, scale)
    before, found = [recorded(steps, change) for change in (None, planted)]
    assert before is None
    assert found is not None
    change = cause(Compile(0, 0, 1, "", 0, 0, 0, found.places(PLACE), diff=found.diff))
    assert change is not None
    made = found.places.frames[change.made]
    if what == "shape":
        assert (change.what, change.old, change.new) == ("shape", "f32[4,6]", f"f32[{rows},6]")
        assert made[0].file == __file__
        assert change.moved
    elif what == "dtype":
        assert (change.what, change.old, change.new) == ("dtype", "f32[4,6]", "f64[4,6]")
    elif what == "scalar":
        assert (change.what, change.subject) == ("scalar", "other of aten::mul")
        assert float(change.new) == scale
    elif what == "argument":
        assert (change.what, change.old, change.new, change.subject) == ("argument", "[0]", "[1]", "dims of aten::flip")
    elif what == "held":
        assert (change.what, change.old, change.new) == ("outputs", "1 live outputs", "2 live outputs")
    else:
        assert change.what == "operation"
        assert (change.added > 0) is (what != "removed")
        assert (change.removed > 0) is (what != "added")
        if what == "added":
            assert (change.new, change.added) == ("aten::erf", 1)
        if what == "replaced":
            assert change.new == "aten::erf"


def test_the_record_of_a_large_difference_is_short_and_its_counts_are_exact() -> None:
    tapes.tape().forget()
    many, few = ["flip"] * 40, ["flip"]
    steps = (many, None), (many, Planted("argument", 0, 4, 1.0)), (few, None)
    first, other, shorter = [recorded(*step) for step in steps]  # from one line
    assert first is None
    assert other is not None
    assert (other.diff.total, len(other.diff.differences), other.diff.common) == (40, 3, 0)
    assert shorter is not None
    (block,) = [one.block for one in shorter.diff.differences if one.block is not None]
    assert (block.removed, len(block.old), shorter.diff.removed) == (39, 1, 39), "their one line is named once"
