"""Random programs with one planted change each are explained as what was planted. Nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xlaprof.runtime as xr
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.execution import inflight
from xlaprof.runtime.execution.program import Plan
from xlaprof.runtime.recompile import explain
from xlaprof.runtime.recompile.reasons import Reason
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


def recorded(steps: list[str], change: Planted | None) -> Reason | None:
    """Record one step up to its barrier, and ask why its graph is new."""
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
    walk = explain.walk(tape, "sync", PLACE, end, Plan(("planted", len(tape.known)), extract(end, slots)), slots)
    inflight.tick(end)
    told = explain.reason(tape, walk, live)
    del x, held, live
    tape.reset()
    return told


@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=12),
    what=st.sampled_from(["shape", "dtype", "scalar", "argument", "added", "removed", "replaced", "held"]),
    where=st.integers(0, 11),
    rows=st.sampled_from([1, 2, 3, 5, 7]),
    scale=st.sampled_from([0.0, 1.0, -1.0]),
)
@settings(max_examples=40, deadline=None)
def test_what_was_planted_is_what_is_told(steps: list[str], what: str, where: int, rows: int, scale: float) -> None:
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
    before, told = [recorded(steps, change) for change in (None, planted)]
    assert before is None
    assert told is not None
    if what == "shape":
        assert (told.what, told.old, told.new) == ("shape", "f32[4,6]", f"f32[{rows},6]")
        assert told.made[0].file == __file__
        assert told.moved
    elif what == "dtype":
        assert (told.what, told.old, told.new) == ("dtype", "f32[4,6]", "f64[4,6]")
    elif what == "scalar":
        assert (told.what, told.subject) == ("scalar", "other of aten::mul")
        assert float(told.new) == scale
    elif what == "argument":
        assert (told.what, told.old, told.new, told.subject) == ("argument", "[0]", "[1]", "dims of aten::flip")
    elif what == "held":
        assert (told.what, told.old, told.new) == ("outputs", "1 live outputs", "2 live outputs")
    else:
        assert told.what == "operation"
        assert (told.added > 0) is (what != "removed")
        assert (told.removed > 0) is (what != "added")
        if what == "added":
            assert (told.new, told.added) == ("aten::erf", 1)
        if what == "replaced":
            assert told.new == "aten::erf"
