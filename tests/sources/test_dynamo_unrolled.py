"""Loops that Dynamo unrolls into the graph of a compiled function: which are told, and what compiling one turn does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from story import MS
from torch import nn

from tests.analysis.compiling import Compiling
from tests.sources.observed import Observed, line_of, observing
from xlaprof.analysis.run import Run
from xlaprof.events import DynamoCompile

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

HOURS = torch.ones(2, 12, 4)


class Filter(nn.Module):
    """A state that is carried from hour to hour, by one cell."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Linear(8, 4)

    def turn(self, state: Any, fix: Any) -> Any:
        weight = torch.sigmoid(self.gain(torch.cat([state, fix], -1)))
        return state + weight * (fix - state).tanh()

    def forward(self, fixes: Any) -> Any:
        state = fixes[:, 0]
        for hour in range(1, fixes.shape[1]):
            state = self.turn(state, fixes[:, hour])
        return state.sum()


class Prior(Filter):
    """The same, and one turn before the loop, with the same function."""

    def turn(self, state: Any, fix: Any) -> Any:
        parts = state[:, :1], state[:, 1:3], state[:, 3:]
        return super().turn(torch.cat(parts, -1), fix)

    def forward(self, fixes: Any) -> Any:
        state = self.turn(fixes[:, 0], fixes[:, 0])
        for hour in range(1, fixes.shape[1]):
            state = self.turn(state, fixes[:, hour])
        return state.sum()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Any, mask: Any) -> Any:
        return (x + self.outer(self.inner(x).relu())) * mask


class Stack(nn.Module):
    """Layers, each with its own weights, over one mask."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(12))

    def forward(self, x: Any) -> Any:
        mask = x > 0
        for block in self.blocks:
            x = block(x, mask)
        return x.sum()


class Gauge(nn.Module):
    """A level that follows its inflow from hour to hour, without a weight; the readings of it have one."""

    def __init__(self) -> None:
        super().__init__()
        self.inflow, self.reading = nn.Linear(4, 4), nn.Linear(4, 1)

    def level(self, rain: Any) -> Any:
        level = rain[:, 0]
        for hour in range(1, rain.shape[1]):
            level = level - 0.1 * level.sqrt() + rain[:, hour].relu()
        return level

    def forward(self, rain: Any) -> Any:
        return self.reading(self.level(self.inflow(rain))).sum()


class Twice(Stack):
    """Its layers in two passes, of which each has its own."""

    def forward(self, x: Any) -> Any:
        mask = x > 0
        for half in (self.blocks[:6], self.blocks[6:]):
            for block in half:
                x = block(x, mask)
        return x.sum()


def compiled(path: Path, program: Callable[[], Any]) -> Observed:
    with observing(path) as seen:
        program()
    return seen[0]


def graphs(observed: Observed) -> list[DynamoCompile]:
    return [one for one in observed.of(DynamoCompile) if one.ops and not one.backward]


def test_a_function_that_is_called_before_the_loop_too_has_its_turns_in_the_loop(tmp_path: Path) -> None:
    seen = compiled(tmp_path / "run.log", lambda: torch.compile(Prior(), backend="eager")(HOURS))
    (made,) = graphs(seen)
    slow = [replace(one, dur=20_000_000_000, phases={}) if one == made else one for one in seen.events]
    (finding,) = (one for one in Run().feed_all(slow).report().findings if one.kind == "unrolled_loop")
    assert made.turns == 11
    assert finding.place.line == line_of(Prior, "for hour in")


def test_the_loop_of_a_compiled_function_is_told_with_its_turns_where_they_take_long_to_compile(tmp_path: Path) -> None:
    seen = compiled(tmp_path / "run.log", lambda: torch.compile(Filter(), backend="eager")(HOURS))
    (made,) = graphs(seen)
    assert (made.turns, seen.line(made.loop)) == (11, line_of(Filter, "state = self.turn("))
    assert made.loop_ops >= 0.9 * made.ops
    assert seen.findings("unrolled_loop") == [], "it takes no time here"
    slow = [replace(one, dur=20_000_000_000, phases={}) if one == made else one for one in seen.events]
    report = Run().feed_all(slow).report()
    (finding,) = (one for one in report.findings if one.kind == "unrolled_loop")
    head = line_of(Filter, "for hour in")
    assert finding.place.line == head
    assert (
        f"test_dynamo_unrolled.py:{head}, line {line_of(Filter, 'state = self.turn(')} is traced 11 times"
        in finding.cause
    )
    assert finding.cost_s == pytest.approx(20 * made.loop_ops / made.ops * 10 / 11)
    (charge,) = (one for one in report.torch_compile.charges if one.what == "loop")
    assert charge.seconds == pytest.approx(finding.cost_s)


def test_a_version_for_an_evaluation_unrolls_the_loop_once_more(tmp_path: Path) -> None:
    def program() -> None:
        fast = torch.compile(Filter(), backend="eager")
        fast(HOURS)
        with torch.no_grad():
            fast(HOURS)

    seen = compiled(tmp_path / "run.log", program)
    first, again = graphs(seen)
    slow = [replace(one, dur=20_000_000_000, phases={}) if one in (first, again) else one for one in seen.events]
    report = Run().feed_all(slow).report()
    (finding,) = report.findings
    assert (finding.kind, finding.count) == ("unrolled_loop", 2)
    assert finding.cost_s == pytest.approx(2 * 20 * first.loop_ops / first.ops * 10 / 11)
    charges = {one.what: one.seconds for one in report.torch_compile.charges}
    assert charges["loop"] == pytest.approx(finding.cost_s)
    assert charges["necessary"] == pytest.approx(20 - finding.cost_s / 2), "what one turn takes stays"
    assert charges["first"] == pytest.approx(20 - finding.cost_s / 2)


@pytest.mark.parametrize("layers", [Stack, Twice])
def test_layers_with_weights_of_their_own_are_no_loop_over_data(tmp_path: Path, layers: type[nn.Module]) -> None:
    (made,) = graphs(compiled(tmp_path / "run.log", lambda: torch.compile(layers(), backend="eager")(HOURS)))
    assert (made.turns, made.loop) == (0, 0)


def test_a_loop_without_weights_is_told_though_the_line_that_calls_it_has_modules_with_some(tmp_path: Path) -> None:
    seen = compiled(tmp_path / "run.log", lambda: torch.compile(Gauge(), backend="eager")(HOURS))
    (made,) = graphs(seen)
    assert (made.turns, seen.line(made.loop)) == (11, line_of(Gauge, "level = level - 0.1"))


def test_compiling_what_one_turn_computes_makes_one_small_graph(tmp_path: Path) -> None:
    def by_turns() -> Any:
        model = Filter()
        model.turn = torch.compile(model.turn, backend="eager")  # type: ignore[method-assign]
        return model(HOURS)

    (whole,) = graphs(compiled(tmp_path / "whole.log", lambda: torch.compile(Filter(), backend="eager")(HOURS)))
    turns = graphs(compiled(tmp_path / "turn.log", by_turns))
    assert len(turns) <= 2, "the first state may lie otherwise in memory than those that the turns make"
    assert sum(one.ops for one in turns) * 5 <= whole.ops
    assert all(one.turns < 3 for one in turns)


def on_inductor(later: int) -> list[Any]:
    """A recording of the first graph of a process, with an import and a compiler's first use, and ``later`` others."""
    story = Compiling()
    loop = story.story.line(41, "loss = loss + edge(x)", loops=(40,))
    one = {"turns": 4, "loop": loop, "loop_ops": 40}
    story.compile(
        "0/0", 28_000, 40, phases={"Dynamo": 2_000 * MS, "Inductor": 5_000 * MS, "kernels": 21_000 * MS}, **one
    )
    for at in range(later):
        story.compile(
            f"{at + 1}/0", 2_500, 20, phases={"Dynamo": 500 * MS, "Inductor": 500 * MS, "kernels": 1_500 * MS}
        )
    return story.story.events


def test_the_first_use_of_inductor_is_no_gain_of_a_loop(tmp_path: Path) -> None:
    """28 s for 40 operations, where 20 others take 2.5 s: 2 s of Dynamo's and 4 s of the compiler's are theirs."""
    report = Run().feed_all(on_inductor(later=3)).report()
    assert [one for one in report.findings if one.kind == "unrolled_loop"] == [], "4.5 s of 6, in a run of 35"
    (first,) = (one for one in report.torch_compile.charges if one.what == "first")
    assert "22.0 s went into the first use of inductor in a process" in first.why


def test_a_loop_that_is_dear_without_it_is_told_with_what_stays(tmp_path: Path) -> None:
    events = [
        replace(one, dur=48_000 * MS, phases={**one.phases, "Dynamo": 22_000 * MS}) if getattr(one, "turns", 0) else one
        for one in on_inductor(later=3)
    ]
    (finding,) = (one for one in Run().feed_all(events).report().findings if one.kind == "unrolled_loop")
    assert "Compiling took 48.0 s, 22.0 s of it for the first use of inductor in the process." in finding.cause
    assert finding.cost_s == pytest.approx((48 - 22) * 3 / 4)


def test_the_backward_graph_of_the_turns_is_a_part_of_what_they_cost() -> None:
    """It says nothing of a loop by itself; what compiles one turn has one turn's backward graph, too."""
    events = on_inductor(later=3)
    (forward,) = (one for one in events if getattr(one, "turns", 0))
    of_turns = {"turns": 0, "loop": 0, "ops": 0, "loop_ops": 0, "phases": {"Inductor": 20_000 * MS}}
    backward = replace(forward, t=events[-1].t + 60_000 * MS, dur=20_000 * MS, backward=True, **of_turns)
    other = replace(backward, t=backward.t + 30_000 * MS, compile="1/0")
    (finding,) = (
        one for one in Run().feed_all([*events, backward, other]).report().findings if one.kind == "unrolled_loop"
    )
    assert finding.cost_s == pytest.approx((28 - 22) * 3 / 4 + 20 * 3 / 4)
    assert "Compiling took 48.0 s, 22.0 s of it for the first use" in finding.cause
    assert finding.count == 2
    assert any("the backward graph took 20.0 s" in one for one in finding.evidence)


def test_of_a_process_with_one_graph_nothing_of_the_compiler_behind_it_is_promised() -> None:
    report = Run().feed_all(on_inductor(later=0)).report()
    assert [one for one in report.findings if one.kind == "unrolled_loop"] == []
    (first,) = report.torch_compile.charges
    assert "first use" not in first.why, "nobody knows how much"
